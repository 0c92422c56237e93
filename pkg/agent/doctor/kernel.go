package doctor

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

func (e *exam) cpus() Finding {
	online := e.topology.Online()
	saw := []Reading{{cpuDir + "online", host.FormatCPUList(online)}}
	if absent := len(e.topology.Cores) - len(online); absent > 0 {
		_, offline := e.read(cpuDir + "offline")
		saw = append(saw, offline)
	}
	if len(e.cores) == 0 {
		return problem("no core is left for real-time work beside the one that the system keeps",
			"give the machine a second CPU, or name cores with --cores").saw(saw...)
	}
	return ok(fmt.Sprintf("cores %s would take real-time work; --cores and --reserved-cores choose others", host.FormatCPUList(e.cores))).saw(saw...)
}

func (e *exam) kernel() Finding {
	release, saw := e.read(releasePath)
	if release == "" {
		return problem("this is no Linux machine, or its /proc is not mounted", "mount /proc; name the directory below which a machine is mounted with --root").saw(saw)
	}
	_, version := e.read(versionPath)
	return ok("what works is found by trying, not by the version").saw(saw, version)
}

func (e *exam) preemptRT() Finding {
	realtime, saw := e.read("/sys/kernel/realtime")
	version, versionSaw := e.read(versionPath)
	if realtime == "1" || strings.Contains(version, "PREEMPT_RT") {
		return note("nearly all of the kernel can be preempted by real-time tasks; also the threads ktimers/N, in which the timers run that raise budgets and, with backend fifo, end them, and irq_work/N, which wake the agent: at their default priority 1 a container that never yields keeps its core's from running",
			"for p in $(pgrep 'ktimers/|irq_work/'); do chrt -f -p 90 $p; done (containers get at most 85)").saw(saw, versionSaw)
	}
	return note("long sections of the kernel cannot be preempted: now and then a real-time task waits hundreds of microseconds or more for its core",
		"for bounded latencies boot a kernel with CONFIG_PREEMPT_RT (mainline since 6.12; linux-image-rt-amd64, kernel-rt)").saw(saw, versionSaw)
}

// tick is how often the kernel looks at budgets by itself.
func (e *exam) tick() Finding {
	text, known, saw := e.option("CONFIG_HZ")
	hz, err := strconv.ParseInt(text, 10, 64)
	if !known || err != nil || hz <= 0 {
		return note("how often the kernel looks at budgets is not known; the agent measures how far tasks run past them, at every start, and publishes it as budgetGranularityUs", "").saw(saw)
	}
	us := million / hz
	if hz >= 1000 {
		return ok(fmt.Sprintf("a task may run up to %d us past a budget that the kernel enforces", us)).saw(saw)
	}
	means := fmt.Sprintf("a task may run up to %d us past a budget that the kernel enforces (check granularity)", us)
	mend := "boot a kernel with CONFIG_HZ=1000, or have budgets of SCHED_DEADLINE end by a timer (check hrtick)"
	switch e.backend() {
	case backendRTGroup:
		mend = "boot a kernel with CONFIG_HZ=1000, or one without RT groups: budgets of backend fifo do not wait for the tick"
	case backendFIFO:
		return note(means+". Backend fifo enforces budgets by a timer of its own and is not bound to the tick", "").saw(saw)
	}
	return warning(means, mend).saw(saw)
}

// hrtick would enforce deadline budgets to the microsecond.
func (e *exam) hrtick() Finding {
	built, known, saw := e.option("CONFIG_SCHED_HRTICK")
	switch {
	case known && built != "y":
		return note("the kernel has no timer for the ends of budgets, only the tick", "").saw(saw)
	case e.features == nil:
		return note("whether the timer for the ends of budgets is on cannot be read: debugfs is not mounted, or locked down. The agent measures how far tasks run past their budgets instead",
			"mount -t debugfs none /sys/kernel/debug, where the kernel is not locked down").saw(saw, e.debugSaw)
	case e.features["HRTICK_DL"]:
		return ok("budgets of SCHED_DEADLINE end by a timer, not at the next tick").saw(saw, Reading{featuresPath, "HRTICK_DL"})
	}
	return note("budgets of SCHED_DEADLINE end at the next tick; real-time groups always do",
		"for backend deadline: echo HRTICK_DL > "+featuresPath+" (at every boot)").saw(saw, Reading{featuresPath, "NO_HRTICK_DL"})
}

const million int64 = 1_000_000

// thetaPpm is the most that is promised of a core.
const thetaPpm int64 = 900_000

func (e *exam) rtLimit() Finding {
	_, runtimeSaw := e.read("/proc/sys/kernel/sched_rt_runtime_us")
	_, periodSaw := e.read("/proc/sys/kernel/sched_rt_period_us")
	limit, err := e.limit()
	switch {
	case err != nil:
		return problem("the kernel's net for real-time tasks makes no sense: "+err.Error(), "sysctl kernel.sched_rt_runtime_us=950000 kernel.sched_rt_period_us=1000000").saw(runtimeSaw, periodSaw)
	case limit > million:
		return warning("there is no net: a real-time task that never sleeps takes its core for ever, the kernel's own threads included",
			"sysctl kernel.sched_rt_runtime_us=950000").saw(runtimeSaw, periodSaw)
	case limit < thetaPpm:
		return warning(fmt.Sprintf("real-time tasks get at most %s of a core, less than the %s that could be promised", percent(limit), percent(thetaPpm)),
			"sysctl kernel.sched_rt_runtime_us=950000 kernel.sched_rt_period_us=1000000").saw(runtimeSaw, periodSaw)
	}
	return ok(fmt.Sprintf("real-time tasks get at most %s of a core, should all else fail. Kernels without RT groups from about 6.12 on see to that by the fair server instead (check fair-server)", percent(limit))).saw(runtimeSaw, periodSaw)
}

// limit for real-time tasks in millionths; more than a million is no limit.
func (e *exam) limit() (int64, error) {
	runtime, period, err := e.h.RTLimits()
	if err != nil {
		return 0, err
	}
	if runtime < 0 {
		return million + 1, nil
	}
	return runtime * million / period, nil
}

func (e *exam) fairServer() Finding {
	least, most, known := e.servers(e.h.FairServer)
	where := "/sys/kernel/debug/sched/fair_server"
	if !known {
		return note(fmt.Sprintf("what the kernel keeps for ordinary tasks on each core cannot be read, so the usual %s is assumed", percent(host.DefaultFairServer)),
			"mount debugfs, where the kernel is not locked down").saw(e.debugSaw)
	}
	saw := Reading{where, spread(least, most)}
	switch there, absent := e.exists(where); {
	case !there:
		return note("the kernel has no such server: only its limit for real-time tasks (check rt-limit) leaves ordinary ones something", "").saw(absent)
	case least == 0:
		return warning("the server of ordinary tasks is off: where nothing else stops it, a real-time task that never sleeps takes its core for ever, the kernel's own threads included",
			"echo 50000000 > "+where+"/cpu<N>/runtime").saw(saw)
	}
	return ok("ordinary tasks of a core that is full of real-time work still get this much").saw(saw)
}

func (e *exam) extServer() Finding {
	least, most, known := e.servers(e.h.ExtServer)
	where := "/sys/kernel/debug/sched/ext_server"
	switch {
	case !known:
		built, optionKnown, saw := e.option("CONFIG_SCHED_CLASS_EXT")
		if optionKnown && built != "y" {
			return ok("the kernel has no sched_ext, so nothing is kept for it").saw(saw)
		}
		return note("what the kernel keeps for tasks of sched_ext cannot be read; none is assumed", "").saw(e.debugSaw)
	case most == 0:
		return ok("nothing is kept for tasks of sched_ext").saw(Reading{where, spread(least, most)})
	}
	return note("this much of every core is kept for tasks of sched_ext and lessens what can be promised",
		"if no scheduler of sched_ext is used: echo 0 > "+where+"/cpu<N>/runtime").saw(Reading{where, spread(least, most)})
}

// servers asks for every real-time core what a server keeps.
func (e *exam) servers(of func(core int) (int64, bool)) (least, most int64, known bool) {
	for i, core := range e.cores {
		ppm, coreKnown := of(core)
		known = coreKnown && (known || i == 0)
		if i == 0 {
			least = ppm
		}
		least, most = min(least, ppm), max(most, ppm)
	}
	return least, most, known
}

func spread(least, most int64) string {
	if least == most {
		return percent(most) + " of a core"
	}
	return percent(least) + " to " + percent(most) + " of a core"
}

// capacity is what can be promised of a core.
func (e *exam) capacity() Finding {
	limit, err := e.limit()
	if err != nil {
		return problem("what can be promised of a core is not known: "+err.Error(), "see check rt-limit")
	}
	_, fair, _ := e.servers(e.h.FairServer)
	_, ext, _ := e.servers(e.h.ExtServer)
	theta := max(0, min(thetaPpm, min(limit, million)-fair-ext))
	saw := Reading{"limit, less fair and ext server", fmt.Sprintf("%s - %s - %s, at most %s", percent(min(limit, million)), percent(fair), percent(ext), percent(thetaPpm))}
	means := fmt.Sprintf("budgets on a core may add up to %s", percent(theta))
	if e.backend() == backendRTGroup {
		means += fmt.Sprintf("; but real-time groups share one pot of %s for all cores of the machine", percent(min(limit, million)))
		if len(e.cores) > 1 {
			return note(means, "for the full capacity of every core: a kernel without RT groups (backend fifo), or one with HCBS").saw(saw)
		}
	}
	if theta < thetaPpm {
		return note(means, "see checks rt-limit, fair-server and ext-server").saw(saw)
	}
	return ok(means).saw(saw)
}

func (e *exam) pressure() Finding {
	psi, err := e.h.PSI("cpu", "")
	_, saw := e.read("/proc/pressure/cpu")
	if errors.Is(err, host.ErrUnsupported) {
		return note("pressure stall information is not there; the agent judges how busy the node is by utilisation alone",
			"boot with psi=1, and a kernel with CONFIG_PSI").saw(saw)
	}
	if err != nil {
		return warning("pressure stall information makes no sense: "+err.Error(), "").saw(saw)
	}
	return ok(fmt.Sprintf("some task waited for a CPU in %d.%02d %% of the last 10 s", psi.Some.Avg10/100, psi.Some.Avg10%100)).saw(Reading{saw.Where, "readable"})
}

func percent(ppm int64) string { return strconv.FormatFloat(float64(ppm)/10_000, 'f', -1, 64) + " %" }
