package rt

// Policy is how a core chooses among its servers.
type Policy uint8

const (
	// EDF means: earliest deadline first among constant bandwidth servers (HCBS, SCHED_DEADLINE).
	EDF Policy = iota
	// EDFVirtualDeadlines means: as EDF, and the backend can change a server's relative deadline while
	// it runs.
	EDFVirtualDeadlines
	// FixedPriority means: the server of the highest priority runs (RT groups, FIFO threads with budgets).
	FixedPriority
)

// The backends, as in RTNode.status.backend, of which two order tasks by fixed priorities. The others run
// servers by earliest deadline first, or are simulated as such.
const (
	backendRTGroup  = "rtgroup"
	backendFIFO     = "fifo"
	backendHCBS     = "hcbs"
	backendDeadline = "deadline"
)

// PolicyOf is how a backend chooses among the servers of a core.
func PolicyOf(backend string) Policy {
	if backend == backendRTGroup || backend == backendFIFO {
		return FixedPriority
	}
	return EDF
}

// KeepsLimited says that a backend gives a Limited server no more than its low budget before it overruns, and the whole high one in the period that
// did, as T1k takes for granted. Where deadlines order servers that is not so: deadline gives all their high budgets from the start, of which
// the reserve pays one; hcbs can raise only by the share of the step that is left of the period, or the kernel gives more than the bandwidth.
func KeepsLimited(backend string) bool {
	return backend != backendHCBS && backend != backendDeadline
}

// NoSibling is the Sibling of a core without simultaneous multithreading.
const NoSibling = -1

// Core is what a core offers.
type Core struct {
	// ID is the kernel's number of the core, NUMA that of its memory node, Sibling that of the core
	// that shares its execution units.
	ID, NUMA, Sibling int
	// Capacity is the bandwidth for servers, without EscalationReserve. See Capacity.
	Capacity PPM
	// EscalationReserve is kept free for raising Limited servers, one at a time.
	EscalationReserve PPM
	// Granularity is how late, in microseconds, the end of a budget may be noticed; charged to every
	// server.
	Granularity int64
	// Policy chooses the admission test.
	Policy Policy
}

// MaxCapacity is the most that is ever promised of a core.
const MaxCapacity PPM = 900_000

// Host is what a kernel leaves for servers on one of its cores.
type Host struct {
	// RTRuntime and RTPeriod are sysctls kernel.sched_rt_runtime_us and sched_rt_period_us. A negative
	// runtime means no limit.
	RTRuntime, RTPeriod int64
	// FairServer and ExtServer are the bandwidths of the kernel's deadline servers for ordinary and
	// sched_ext tasks; HostDeadline is that of other SCHED_DEADLINE tasks, Agent what the node agent
	// takes at real-time priority.
	FairServer, ExtServer, HostDeadline, Agent PPM
}

// Capacity is theta, the bandwidth of a core that may be promised: the smaller of MaxCapacity and what
// the kernel allows less the reserves. It is 0 when nothing is left or the sysctls make no sense.
func Capacity(h Host) PPM {
	limit := OneCore
	if h.RTRuntime >= 0 {
		if h.RTPeriod <= 0 || h.RTRuntime > h.RTPeriod || h.RTRuntime > int64(Unlimited)/int64(OneCore) {
			return 0
		}
		limit = PPM(h.RTRuntime * int64(OneCore) / h.RTPeriod)
	}
	for _, reserve := range []PPM{h.FairServer, h.ExtServer, h.HostDeadline, h.Agent} {
		if reserve < 0 || reserve >= limit {
			return 0
		}
		limit -= reserve
	}
	return min(limit, MaxCapacity)
}
