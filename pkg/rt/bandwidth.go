package rt

import "slices"

// used is the bandwidth that the servers take from the core.
func used(core Core, servers []Server) PPM {
	total := PPM(0)
	for _, s := range servers {
		total = sum(total, s.Charge(core.Granularity))
	}
	return total
}

// T1 is the test for immediate escalation: the sum of High/T over the servers that may escalate and of Low/T over the
// others is at most the core's capacity. It knows no modes: each server is a constant bandwidth server of its largest
// budget, so EDF keeps every budget (Abeni and Buttazzo, RTSS 1998; Liu and Layland 1973), whichever server overruns and
// whenever. Limited servers are charged as any other.
func T1(core Core, servers []Server) Verdict {
	total := PPM(0)
	for _, s := range servers {
		total = sum(total, s.at(s.Guaranteed(), core.Granularity))
	}
	return judge(TestT1, total, core.Capacity)
}

// T1k is the test for limited escalation: all charges and the k largest steps of Limited servers fit
// into the core's capacity and escalation reserve together. It is sound only with the window rule: the
// windows [release, deadline] of the raised periods of Limited servers overlap at most k deep, so a
// slot that its holder gives back at its deadline may be taken only by a server whose current period
// was released at or after that deadline. Then the raises add to any interval of length L at most the k
// largest steps times L, and the sum of all demand is at most L (the demand bound of Baruah, Mok and
// Rosier, RTSS 1990). Without the rule it is unsound: rt/sim has the counter-example.
func T1k(k int, core Core, servers []Server) Verdict {
	total := used(core, servers)
	for _, step := range largestSteps(k, servers) {
		total = sum(total, step)
	}
	return judge(TestT1k, total, sum(max(0, core.Capacity), max(0, core.EscalationReserve)))
}

// largestSteps are the k largest steps of Limited servers.
func largestSteps(k int, servers []Server) []PPM {
	steps := make([]PPM, 0, len(servers))
	for _, s := range servers {
		if s.Limited && s.MayEscalate() {
			steps = append(steps, s.Step())
		}
	}
	slices.SortFunc(steps, func(a, b PPM) int { return int(b - a) })
	return steps[:max(0, min(k, len(steps)))]
}

// Budget is what a kernel has been told about one server: microseconds in every period.
type Budget struct{ Runtime, Period int64 }

// kernelShift is the kernel's fixed point for bandwidths (BW_SHIFT in kernel/sched/sched.h).
const kernelShift = 20

// KernelNecessary is the kernel's own test (__dl_overflow, tg_rt_schedulable): the sum of the current
// budgets, each rounded down as the kernel does, is at most the limit. It is necessary, because
// the kernel refuses a write that breaks it (EBUSY), and never sufficient: it knows neither the
// budgets that servers may be raised to, nor deadlines shorter than periods, nor its own granularity.
func KernelNecessary(limit PPM, current []Budget) Verdict {
	total, most := int64(0), int64(limit)<<kernelShift/int64(OneCore)
	for _, b := range current {
		if b.Period <= 0 || b.Runtime < 0 || b.Runtime > MaxPeriod {
			return judge(TestKernel, Unlimited, limit)
		}
		total += b.Runtime << kernelShift / b.Period
		if total > most {
			return judge(TestKernel, max(fromKernel(total), limit+1), limit)
		}
	}
	return judge(TestKernel, min(fromKernel(total), limit), limit)
}

// fromKernel is a bandwidth of the kernel in PPM, rounded up.
func fromKernel(bw int64) PPM {
	if bw >= int64(Unlimited)/int64(OneCore) {
		return Unlimited
	}
	return PPM(ceilDiv(bw*int64(OneCore), 1<<kernelShift))
}
