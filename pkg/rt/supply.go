package rt

// Task is a periodic or sporadic task inside a container. Times are microseconds.
type Task struct {
	// Period is the shortest time between releases, WCET the longest execution time, Deadline relative to
	// the release; 0 means Period.
	Period, WCET, Deadline int64
	// Priority matters only under fixed priorities; the higher runs first.
	Priority int
}

// PeriodAdvice is what to tell the owner of a container whose server may serve its tasks badly.
type PeriodAdvice struct {
	// Fits: the supply-bound test passes (or, without tasks, there was nothing to test).
	Fits bool
	// MaxPeriod is the longest server period, in microseconds, that is advised: half the shortest period of a task.
	MaxPeriod int64
	// Task is the index of a task that may miss its deadline; -1 when none does.
	Task int
}
