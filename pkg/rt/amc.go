package rt

// RestPeriod is the period, in microseconds, in which a fixed-priority core gives away what is not its
// capacity: the agent's and the host's own real-time work, which is taken to come in pieces no longer
// than the core's rest of it.
const RestPeriod int64 = 1_000

// AMCrtb is the response-time analysis of adaptive mixed criticality (Baruah, Burns, Davis, RTSS 2011,
// AMC-rtb) for servers under fixed priorities. First each server is analysed with the largest budgets
// that all may use, as if there were no modes (Joseph and Pandya 1986); what passes needs no server squeezed.
// Else, with j over the servers of higher or equal priority and the core's rest, C the budgets with the
// granularity, F the low ones after the squeeze (see Floor) and J the jitters, both
//
//	R_i  = C_i(Low) + sum ceil((R_i+J_j)/T_j) C_j(Low)
//	R*_i = C*_i     + sum over escalating j of ceil((R*_i+J_j)/T_j) C_j(High)
//	                + sum over other j of      ceil((R_i+J_j)/T_j) (C_j(Low)-F_j) + ceil((R*_i+J_j)/T_j) F_j
//
// must be at most the deadline, C*_i being High for servers that escalate and F_i for the others. With
// F = 0 that is the paper's test; servers that are squeezed instead of stopped add what they keep.
// The first overrun squeezes and raises; an idle core returns to low budgets.
//
// A server keeps its budget while its threads sleep, and its periods are not aligned with their
// wake-ups, so it may run at the end of one period and at once in the next. Its jitter is J = T - C,
// that of a deferrable server (Strosnider, Lehoczky, Sha 1995; Davis and Burns, RTSS 2005).
func AMCrtb(core Core, servers []Server) Verdict {
	v, _ := amcTest(core, servers)
	return v
}

// amcTest also says whether servers have to be squeezed.
func amcTest(core Core, servers []Server) (v Verdict, squeezes bool) {
	v = judge(TestAMC, used(core, servers), core.Capacity)
	v.Admitted, v.Reason = true, ReasonFits
	tasks := amcTasks(core, servers)
	if late(tasks, meetsAlways) < 0 {
		return v, false
	}
	if i := late(tasks, meetsModes); i >= 0 {
		return v.refuse(ReasonResponseTime, tasks[i].id), true
	}
	return v, true
}

// amcTask is a server as the analysis sees it, the granularity included; microseconds.
type amcTask struct {
	id               string
	period, window   int64
	low, high, floor int64
	priority         int
	escalates        bool
	isRest           bool
}

// above reports whether t may hold up u.
func (t amcTask) above(u amcTask) bool {
	return t.id != u.id && (t.isRest || t.priority >= u.priority)
}

// releases is how often t may run a budget of c within an interval.
func (t amcTask) releases(interval, c int64) int64 {
	jitter := max(0, t.period-c)
	if t.isRest {
		jitter = 0
	}
	return ceilDiv(interval+jitter, t.period)
}

// amcTasks are the servers in their order, and last the rest of the core.
func amcTasks(core Core, servers []Server) []amcTask {
	g := core.Granularity
	tasks := make([]amcTask, 0, len(servers)+1)
	for _, s := range servers {
		tasks = append(tasks, amcTask{
			id: s.ID, period: s.Period, window: s.Window(), priority: s.Priority, escalates: s.MayEscalate(),
			low: withLateness(s.Low, g), high: withLateness(s.Guaranteed(), g), floor: withLateness(s.Floor(g), g),
		})
	}
	rest := ceilDiv(int64(OneCore-min(max(0, core.Capacity), OneCore))*RestPeriod, int64(OneCore))
	return append(tasks, amcTask{period: RestPeriod, window: RestPeriod, low: rest, high: rest, floor: rest, isRest: true})
}

// late is the index of the first server that does not meet its deadline; -1 for none.
func late(tasks []amcTask, meets func([]amcTask, amcTask) bool) int {
	for i, t := range tasks {
		if !t.isRest && !meets(tasks, t) {
			return i
		}
	}
	return -1
}

func meetsAlways(tasks []amcTask, t amcTask) bool {
	_, ok := response(t.high, t.window, func(r int64) int64 {
		return interference(tasks, t, func(j amcTask) int64 { return j.releases(r, j.high) * j.high })
	})
	return ok
}

func meetsModes(tasks []amcTask, t amcTask) bool {
	before, ok := response(t.low, t.window, func(r int64) int64 {
		return interference(tasks, t, func(j amcTask) int64 { return j.releases(r, j.low) * j.low })
	})
	if !ok {
		return false
	}
	own := t.floor
	if t.escalates {
		own = t.high
	}
	_, ok = response(own, t.window, func(r int64) int64 {
		return interference(tasks, t, func(j amcTask) int64 {
			if j.escalates {
				return j.releases(r, j.high) * j.high
			}
			return j.releases(before, j.low)*(j.low-j.floor) + j.releases(r, j.low)*j.floor
		})
	})
	return ok
}

// maxRounds bounds a fixed-point iteration. What has not settled by then counts as late.
const maxRounds = 100_000

// response is the smallest fixed point of r = own + others(r) up to the window.
func response(own, window int64, others func(r int64) int64) (int64, bool) {
	r := own
	for range maxRounds {
		if r > window {
			return r, false
		}
		next := own + others(r)
		if next <= r {
			return r, true
		}
		r = next
	}
	return r, false
}

// interference adds up what the servers above t take; it saturates above every window.
func interference(tasks []amcTask, t amcTask, takes func(amcTask) int64) int64 {
	total := int64(0)
	for _, j := range tasks {
		if j.above(t) {
			total += takes(j)
		}
		if total > MaxPeriod {
			return MaxPeriod + 1
		}
	}
	return total
}
