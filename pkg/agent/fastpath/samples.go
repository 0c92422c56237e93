package fastpath

// sample is one reaction; see client.Sample.
type sample struct {
	slot, generation                        uint32
	instant, detected, woken, written, lead int64
}

// samples keeps the last reactions of a core. It never allocates after it was made; nil keeps none.
type samples struct {
	kept []sample
	next int
}

func newSamples(size int) *samples {
	if size <= 0 {
		return nil
	}
	return &samples{kept: make([]sample, 0, size)}
}

func (s *samples) add(one sample) {
	switch {
	case s == nil:
	case len(s.kept) < cap(s.kept):
		s.kept = append(s.kept, one)
	default:
		s.kept[s.next] = one
		s.next = (s.next + 1) % len(s.kept)
	}
}

// all are the samples, oldest first.
func (s *samples) all() []sample {
	if s == nil {
		return nil
	}
	return append(append([]sample{}, s.kept[s.next:]...), s.kept[:s.next]...)
}
