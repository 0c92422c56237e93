package doctor

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// isolation keeps ordinary tasks off the cores.
func (e *exam) isolation() Finding {
	isolated, saw := e.isolated()
	spare := slices.DeleteFunc(slices.Clone(isolated), func(cpu int) bool { return slices.Contains(e.cores, cpu) })
	open := slices.DeleteFunc(slices.Clone(e.cores), func(cpu int) bool { return slices.Contains(isolated, cpu) })
	switch {
	case len(spare) > 0:
		return note(fmt.Sprintf("cores %s are isolated, but the agent leaves isolated cores alone unless they are named", host.FormatCPUList(spare)),
			fmt.Sprintf("start the agent with --cores %s, if they are isolated for it", host.FormatCPUList(isolated))).saw(saw...)
	case len(open) > 0:
		list := host.FormatCPUList(open)
		return note(fmt.Sprintf("ordinary tasks run on cores %s too. Real-time tasks preempt them, but caches and sections of the kernel are shared", list),
			fmt.Sprintf("for low latencies boot with isolcpus=domain,managed_irq,%s rcu_nocbs=%s, or make an isolated cpuset partition, and name the cores with --cores", list, list)).saw(saw...)
	}
	return ok("the scheduler puts no ordinary task on these cores by itself").saw(saw...)
}

// isolated are the cores out of load balancing: at boot, or by a partition of the v2 hierarchy.
func (e *exam) isolated() (cpus []int, saw []Reading) {
	text, atBoot := e.read(cpuDir + "isolated")
	saw = append(saw, atBoot)
	cpus, err := host.ParseCPUList(text)
	if err != nil {
		cpus = nil // shown as read
	}
	if dir, err := e.groups.Dir(host.Unified, "/"); err == nil {
		for _, file := range e.h.Glob(path.Join(e.h.Rel(dir), "*", "cpuset.cpus.partition")) {
			if kind, partition := e.read(file); kind == "isolated" {
				list, members := e.read(path.Join(path.Dir(file), "cpuset.cpus.effective"))
				saw = append(saw, partition, members)
				more, _ := host.ParseCPUList(list)
				cpus = append(cpus, more...)
			}
		}
	}
	slices.Sort(cpus)
	return slices.Compact(cpus), saw
}

// tickStop is a blessing for a task that is alone, unless budgets are enforced at ticks.
func (e *exam) tickStop() Finding {
	_, saw := e.read(cpuDir + "nohz_full")
	full, err := e.h.NoHzFull()
	if err != nil {
		return note("whether the tick stops on these cores cannot be read", "").saw(saw)
	}
	stopped := e.shared(full)
	switch {
	case len(stopped) == 0:
		return ok("the tick runs on these cores").saw(saw)
	case e.backend() == backendRTGroup:
		return warning(fmt.Sprintf("on cores %s the tick stops while one SCHED_FIFO task runs, and with it the kernel's look at the budgets of real-time groups", host.FormatCPUList(stopped)),
			"boot without nohz_full on these cores, or with a kernel without RT groups (backend fifo has a timer of its own)").saw(saw)
	}
	return ok(fmt.Sprintf("on cores %s the tick stops while one task runs alone", host.FormatCPUList(stopped))).saw(saw)
}

// shownIRQs is how many interrupts are named.
const shownIRQs = 6

func (e *exam) interrupts() Finding {
	var here []Reading
	all := e.h.Glob("/proc/irq/[0-9]*")
	for _, dir := range all {
		if saw, hit := e.interrupt(dir); hit {
			here = append(here, saw)
		}
	}
	if len(here) == 0 {
		return ok(fmt.Sprintf("none of %d interrupts of devices is handled on these cores", len(all))).saw(Reading{"/proc/irq/*/effective_affinity_list", "elsewhere"})
	}
	others := slices.DeleteFunc(e.topology.Online(), func(cpu int) bool { return slices.Contains(e.cores, cpu) })
	list := host.FormatCPUList(others)
	means := fmt.Sprintf("%d of %d interrupts of devices may be handled on these cores, and delay any task there", len(here), len(all))
	return warning(means, fmt.Sprintf("boot with irqaffinity=%s; for now: echo %s > /proc/irq/<N>/smp_affinity_list; keep irqbalance away with IRQBALANCE_BANNED_CPULIST=%s",
		list, list, host.FormatCPUList(e.cores))).saw(here[:min(len(here), shownIRQs)]...)
}

// interrupt says whether one is handled on a real-time core. Where the kernel does not tell the effective cores, the
// allowed ones count; interrupts without a handler do not.
func (e *exam) interrupt(dir string) (Reading, bool) {
	handlers := e.h.Dirs(dir)
	if len(handlers) == 0 {
		return Reading{}, false
	}
	for _, file := range []string{"effective_affinity_list", "smp_affinity_list"} {
		text, saw := e.read(path.Join(dir, file))
		cpus, err := host.ParseCPUList(text)
		if err != nil || len(cpus) == 0 {
			continue
		}
		saw.What += " (" + handlers[0] + ")"
		return saw, len(e.shared(cpus)) > 0
	}
	return Reading{}, false
}

func (e *exam) frequency() Finding {
	governors, saw := e.perCore("cpufreq/scaling_governor")
	_, fixed := governors["performance"]
	_, none := governors[""]
	switch {
	case len(governors) == 0, len(governors) == 1 && none:
		return ok("the kernel does not change the frequency of these cores").saw(saw...)
	case len(governors) == 1 && fixed:
		return ok("these cores run at their highest frequency").saw(saw...)
	}
	return warning("these cores slow down when they have little to do: the same budget does less work then, and the work takes longer",
		"cpupower frequency-set -g performance, for these cores at least").saw(saw...)
}

// wakeUpUs is how long a core may take to wake without it being told.
const wakeUpUs = 20

func (e *exam) idleStates() Finding {
	var saw []Reading
	deepest := 0
	_, driver := e.read(cpuDir + "cpuidle/current_driver")
	for _, core := range e.cores {
		us, name := e.deepest(core)
		if us > wakeUpUs {
			saw = append(saw, Reading{fmt.Sprintf("%scpu%d/cpuidle", cpuDir, core), fmt.Sprintf("%s enabled, wakes in %d us", name, us)})
		}
		deepest = max(deepest, us)
	}
	switch {
	case len(saw) == 0 && deepest == 0:
		return ok("idle cores enter no deep state that the kernel knows of").saw(driver)
	case len(saw) == 0:
		return ok(fmt.Sprintf("an idle core wakes within %d us", deepest)).saw(driver)
	}
	return warning(fmt.Sprintf("an idle core takes up to %d us to wake, which delays the beginning of a job", deepest),
		fmt.Sprintf("cpupower -c %s idle-set -D %d, or boot with processor.max_cstate=1 intel_idle.max_cstate=1", host.FormatCPUList(e.cores), wakeUpUs)).saw(append(saw, driver)...)
}

// deepest is the enabled idle state of a core that takes longest to leave.
func (e *exam) deepest(core int) (us int, name string) {
	for _, state := range e.h.Glob(fmt.Sprintf("%scpu%d/cpuidle/state[0-9]*", cpuDir, core)) {
		disabled, _ := e.read(path.Join(state, "disable"))
		text, _ := e.read(path.Join(state, "latency"))
		latency, err := strconv.Atoi(text)
		if err != nil || disabled == "1" || latency < us {
			continue
		}
		us = latency
		name, _ = e.read(path.Join(state, "name"))
	}
	return us, name
}

func (e *exam) smt() Finding {
	_, saw := e.read(cpuDir + "smt/active")
	var pairs []string
	for _, c := range e.topology.Cores {
		if c.Online && c.Sibling != host.NoSibling && slices.Contains(e.cores, c.ID) {
			pairs = append(pairs, fmt.Sprintf("%d with %d", c.ID, c.Sibling))
		}
	}
	if len(pairs) == 0 {
		return ok("no core shares its hardware with another").saw(saw)
	}
	return warning("cores share their hardware ("+strings.Join(pairs, ", ")+"): work on one slows the other down, by up to a half, and no budget sees it",
		"boot with nosmt, or name one thread of each with --cores and take the others offline (echo 0 > "+cpuDir+"cpu<N>/online)").saw(saw)
}
