package replay

// UnderWay is how many requests of a run have not ended.
func UnderWay(r *Runner) int64 { return r.underWay.Load() }
