package table

// Report is the state of the fast path. Times are nanoseconds since 1970, counters are since the fast path
// started.
type Report struct {
	// Instance changes with every start of the fast path: counters began again.
	Instance string `json:"instance"`
	// Version of the program.
	Version string `json:"version"`
	// Generation of the table that is applied; 0 before the first.
	Generation int64 `json:"generation"`
	// Origin of that table.
	Origin string `json:"origin,omitempty"`
	// Backend enforces budgets: hcbs, rtgroup, fifo, deadline, cfs, or blocked.
	Backend string `json:"backend"`
	// Guarantee says in words what the backend promises.
	Guarantee string `json:"guarantee"`
	// GranularityUs is how far a task ran past its budget in the self-test at start.
	GranularityUs int64 `json:"granularityUs"`
	// LeadUs is how long before its end a budget is raised.
	LeadUs int64 `json:"leadUs"`
	// Hook that sees overruns, for example tp_btf/sched_switch.
	Hook string `json:"hook"`
	// Realtime: every thread runs with a real-time policy. Locked: its memory is.
	Realtime bool `json:"realtime"`
	Locked   bool `json:"locked"`
	// Unenforced is why the kernel enforces no budget now, though it did when the backend was chosen; empty while it does.
	Unenforced string `json:"unenforced,omitempty"`
	// Missing says what the process lacks, and what that costs; one sentence each.
	Missing []string `json:"missing,omitempty"`
	// Cores that take real-time work.
	Cores []CoreReport `json:"cores"`
	// Servers of the table.
	Servers []ServerReport `json:"servers"`
	// Events seen, and those that did not fit in the ring buffers.
	Events uint64 `json:"events"`
	Lost   uint64 `json:"lost"`
	// Unseen is how often a thread came to its core without the programs being called.
	Unseen uint64 `json:"unseen"`
	// Stale is how many servers plans name that are not on their core: what they say of these is passed over.
	Stale int `json:"stale,omitempty"`
	// Detect is from the instant when a budget was to be raised to the program that saw it, React until
	// the new budget was written.
	Detect Histogram `json:"detect"`
	React  Histogram `json:"react"`
}

// CoreReport is a core and what is promised on it.
type CoreReport struct {
	ID          int   `json:"id"`
	CapacityPpm int64 `json:"capacityPpm"`
	PromisedPpm int64 `json:"promisedPpm"`
	// Raised is how many servers are above low.
	Raised int `json:"raised"`
	// Invariants broken: how often more was promised than the plan allows. Always 0, or there is a defect.
	Broken uint64 `json:"broken"`
}

// ServerReport is a server as applied and read back.
type ServerReport struct {
	ID string `json:"id"`
	// BudgetUs, PeriodUs and Cores in force, as the kernel says; 0 when nothing is, or nobody governs it.
	BudgetUs int64 `json:"budgetUs"`
	PeriodUs int64 `json:"periodUs"`
	Cores    []int `json:"cores,omitempty"`
	// HeldUs is the budget that the kernel goes on to enforce while nobody governs it: its core takes no real-time work any more, or its control
	// group could not be opened. Error says which.
	HeldUs int64 `json:"heldUs,omitempty"`
	// LevelUs is the budget that the fast path grants: in mode Reserved, low until the alarm.
	LevelUs int64 `json:"levelUs"`
	// Overruns: periods in which the level's budget was used up, or would have been had it not been raised a
	// lead before. Throttles: how often the
	// kernel, or we in its place, stopped the server.
	Overruns  uint64 `json:"overruns"`
	Throttles uint64 `json:"throttles"`
	// Misses: jobs that ended after their deadline, of Jobs seen.
	Misses uint64 `json:"misses"`
	Jobs   uint64 `json:"jobs"`
	// LastOverrun is 0 when there was none.
	LastOverrun int64 `json:"lastOverrun,omitempty"`
	// Raises, Partial raises, Denied (no room) and Refused (by the kernel), Squeezes and Recoveries.
	Raises     uint64 `json:"raises"`
	Partial    uint64 `json:"partial"`
	Denied     uint64 `json:"denied"`
	Refused    uint64 `json:"refused"`
	Squeezes   uint64 `json:"squeezes"`
	Recoveries uint64 `json:"recoveries"`
	// Drift is how often something else changed what was applied.
	Drift uint64 `json:"drift"`
	// Fault is latched after repeated overruns at the highest budget.
	Fault bool `json:"fault,omitempty"`
	// UsedUs is the CPU time that it has used in all; Threads how many it has, and RealtimeThreads how many of them had a real-time
	// policy when it was looked last. Those from which the fast path itself has taken it, for the rest of a window, count.
	UsedUs          int64 `json:"usedUs"`
	Threads         int   `json:"threads"`
	RealtimeThreads int   `json:"realtimeThreads"`
	// RunQueue is how long its threads waited for their core; absent unless it is measured.
	RunQueue *Waits `json:"runQueue,omitempty"`
	// Waiting: its budget is below low, because what was promised before, by an earlier fast path or by another
	// table, is not over yet. It comes by itself; until then Error says so.
	Waiting bool `json:"waiting,omitempty"`
	// Escapes says what of its container its budget does not hold, or what is not seen of it; empty when all is.
	Escapes string `json:"escapes,omitempty"`
	// Error is why the table could not be applied to it; empty when it was.
	Error string `json:"error,omitempty"`
}

// Waits are run-queue latencies in microseconds. P50Us and P99Us are upper bounds, to a power of two.
type Waits struct {
	P50Us int64 `json:"p50Us"`
	P99Us int64 `json:"p99Us"`
	MaxUs int64 `json:"maxUs"`
}

// BucketUs are the upper bounds of a Histogram's buckets, in microseconds.
var BucketUs = [...]int64{5, 10, 20, 30, 40, 50, 70, 100, 150, 200, 300, 500, 1000, 2000, 5000, 10000}

// Histogram of durations. Count[i] are those of at most BucketUs[i], the last those beyond.
type Histogram struct {
	Count [len(BucketUs) + 1]uint64 `json:"count"`
	SumUs int64                     `json:"sumUs"`
	MaxUs int64                     `json:"maxUs"`
}

// Add counts a duration of nanoseconds; what is negative counts as 0.
func (h *Histogram) Add(ns int64) {
	us := max(ns, 0) / 1000
	i := 0
	for i < len(BucketUs) && us > BucketUs[i] {
		i++
	}
	h.Count[i]++
	h.SumUs += us
	h.MaxUs = max(h.MaxUs, us)
}

// Merge adds what another has counted.
func (h *Histogram) Merge(other Histogram) {
	for i, n := range other.Count {
		h.Count[i] += n
	}
	h.SumUs += other.SumUs
	h.MaxUs = max(h.MaxUs, other.MaxUs)
}

// First is what the container runtime should write when it makes a container's group, so that the
// container has its budget from its first instruction. Zero where there is nothing to write.
type First struct {
	// RuntimeUs and PeriodUs are cpu.rt_runtime_us and cpu.rt_period_us of cgroup v1.
	RuntimeUs int64 `json:"runtimeUs,omitempty"`
	PeriodUs  int64 `json:"periodUs,omitempty"`
	// Unified are files of cgroup v2 and their contents.
	Unified map[string]string `json:"unified,omitempty"`
}
