package doctor

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// The backends, as in RTNode.status.backend.
const (
	backendHCBS     = "hcbs"
	backendRTGroup  = "rtgroup"
	backendFIFO     = "fifo"
	backendDeadline = "deadline"
	backendBlocked  = "blocked"
)

// backend is the best that the machine offers as far as can be read, in the order in which the agent tries them. A
// machine where it cannot be read whether groups need real-time budgets counts as one where they do not. What
// this process has the right to do is not asked here.
func (e *exam) backend() string {
	file, on := e.hcbs()
	switch {
	case e.groupsErr != nil || !e.groups.Has("cpuset"):
		return backendBlocked
	case file != "" && on:
		return backendHCBS
	case e.needBudgets() && !e.groups.InUnified("cpu"):
		return backendRTGroup
	case e.fifoRefused():
		return backendDeadline
	}
	return backendFIFO
}

// needBudgets says that a group without a budget may run no real-time tasks. Without a limit for real-time
// tasks the kernel does not look.
func (e *exam) needBudgets() bool {
	groups, err := e.h.RTGroupSched()
	limit, _ := e.limit()
	return err == nil && groups && limit <= million
}

// fifoRefused is the trap: groups need a budget, and cannot be given one.
func (e *exam) fifoRefused() bool {
	file, _ := e.hcbs()
	return file == "" && e.needBudgets() && e.groups.InUnified("cpu")
}

// hcbs is the file by which the hierarchy of cpu takes real-time budgets for each core, empty without one, and whether it is on: with
// nothing for the root group it is not. Of the older patches, which have it on v1, too, the root has no file, so a group is asked.
func (e *exam) hcbs() (file string, on bool) {
	dir, err := e.groups.Dir("cpu", "/")
	if err != nil {
		return "", false
	}
	root := path.Join(e.h.Rel(dir), "cpu.rt.max")
	if text, _ := e.read(root); text != "" {
		return root, !withoutBudget(text)
	}
	for _, name := range []string{"cpu.rt.max", "cpu.rt_multi_runtime_us"} {
		if found := e.h.Glob(path.Join(e.h.Rel(dir), "*", name)); len(found) > 0 {
			return found[0], true
		}
	}
	return "", false
}

func (e *exam) controlGroups() Finding {
	saw := Reading{"/proc/self/mountinfo", string(e.groups.Version)}
	if e.groupsErr != nil {
		return problem("control groups cannot be used: "+e.groupsErr.Error(), "mount the cgroup hierarchies from their roots, also into the agent's container (hostPath /sys/fs/cgroup)").saw(Reading{saw.Where, "no hierarchy"})
	}
	var missing []string
	for _, controller := range []string{"cpu", "cpuset"} {
		if !e.groups.Has(controller) {
			missing = append(missing, controller)
		}
	}
	switch {
	case len(missing) > 0:
		return problem("containers cannot be given a core or a budget without controller "+strings.Join(missing, " and "),
			"v2: echo +cpu +cpuset > /sys/fs/cgroup/cgroup.subtree_control; v1: mount the controller").saw(saw)
	case e.groups.InUnified("cpu"):
		return ok("controllers cpu and cpuset are in the v2 hierarchy").saw(saw)
	}
	return ok("controllers cpu and cpuset are v1. Kubernetes and systemd are giving v1 up").saw(saw)
}

// rtGroups is the trap of distributions: RT_GROUP_SCHED in a kernel whose v2 groups take no budget.
func (e *exam) rtGroups() Finding {
	if file, on := e.hcbs(); file != "" {
		_, saw := e.read(file)
		if on {
			return ok("groups take real-time budgets for each core (HCBS): the strongest backend").saw(saw)
		}
		return note("the kernel could give real-time budgets to groups (HCBS), but the root group has none to give", "echo 900000 1000000 > "+file).saw(saw)
	}
	saw := e.rtGroupsSaw()
	switch groups, err := e.h.RTGroupSched(); {
	case e.fifoRefused():
		return problem("blocked: groups need a budget for real-time tasks (CONFIG_RT_GROUP_SCHED), and v2 groups have no file to give one. SCHED_FIFO fails with EPERM in every container, whatever its rights. Only backends deadline and cfs are left",
			"boot with rt_group_sched=0, where the kernel knows it (its options name CONFIG_RT_GROUP_SCHED_DEFAULT_DISABLED); or a kernel without CONFIG_RT_GROUP_SCHED (backend fifo), one with HCBS (backend hcbs), or cgroup v1 (systemd.unified_cgroup_hierarchy=0; backend rtgroup)").saw(saw...)
	case err != nil:
		return warning("whether the kernel lets containers run real-time tasks cannot be read: with CONFIG_RT_GROUP_SCHED on cgroup v2 it would not. The agent tries it at start",
			"have /proc/config.gz or /boot/config-<release> readable").saw(saw...)
	case groups && !e.needBudgets():
		return warning("the kernel looks at no group's budget, since sched_rt_runtime_us=-1, which takes its net away too",
			"sysctl kernel.sched_rt_runtime_us=950000; on cgroup v2 boot with rt_group_sched=0 before that, or a kernel without CONFIG_RT_GROUP_SCHED").saw(saw...)
	case groups:
		return ok("v1 groups take real-time budgets: backend rtgroup. A container may run real-time tasks once every level above it has a budget").saw(saw...)
	}
	return ok("any container may run real-time tasks, given the right to: budgets are enforced by the agent (backend fifo)").saw(saw...)
}

func (e *exam) rtGroupsSaw() []Reading {
	if e.groupsErr == nil && !e.groups.InUnified("cpu") {
		if dir, err := e.groups.Dir("cpu", "/"); err == nil {
			_, saw := e.read(path.Join(e.h.Rel(dir), "cpu.rt_runtime_us"))
			return []Reading{saw}
		}
	}
	_, _, option := e.option("CONFIG_RT_GROUP_SCHED")
	_, boot := e.parameter("rt_group_sched")
	return []Reading{option, boot}
}

// kubepodsBudget looks whether real-time tasks could start in a container at this moment.
func (e *exam) kubepodsBudget() Finding {
	backend := e.backend()
	if e.fifoRefused() {
		return note("no group can be given a budget here", "see check rt-group-sched").saw(Reading{"backend", backend})
	}
	if backend != backendRTGroup && backend != backendHCBS {
		return ok("groups need no budget for real-time tasks here").saw(Reading{"backend", backend})
	}
	saw, zero := e.kubepodsSaw(backend)
	switch {
	case len(saw) == 0:
		return note("the kubelet has made no groups here: nothing to look at", "").saw(Reading{"groups kubepods, kubepods.slice", "not there"})
	case zero:
		return note("levels without a budget: SCHED_FIFO fails with EPERM in containers below, until the agent gives every level its part when a container is admitted. The kubelet never does",
			"nothing, where the agent runs").saw(saw...)
	}
	return ok("every level above containers has a budget").saw(saw...)
}

func (e *exam) kubepodsSaw(backend string) (saw []Reading, zero bool) {
	roots, err := e.h.KubepodsGroups()
	if err != nil {
		return nil, false
	}
	file := "cpu.rt_runtime_us"
	if backend == backendHCBS {
		hcbs, _ := e.hcbs()
		file = path.Base(hcbs)
	}
	for _, root := range roots {
		dir, err := e.groups.Dir("cpu", root)
		if err != nil {
			continue // gone since it was found
		}
		for _, level := range e.levels(e.h.Rel(dir)) {
			text, reading := e.read(path.Join(level, file))
			saw, zero = append(saw, reading), zero || withoutBudget(text)
		}
	}
	return saw, zero
}

// levels are a kubepods group and those of the QoS classes below it.
func (e *exam) levels(kubepods string) []string {
	levels := []string{kubepods}
	for _, class := range []string{"*burstable*", "*besteffort*"} {
		levels = append(levels, e.h.Glob(path.Join(kubepods, class))...)
	}
	return levels
}

// withoutBudget reads "0", "0 100000" (runtime and period) and "0 0 0 0" (of each CPU). "max" is what the next group
// above with a budget has.
func withoutBudget(text string) bool {
	fields := strings.Fields(text)
	return len(fields) > 0 && fields[0] == "0"
}

// groupAccess asks whether this process may write to the groups, and make one. It does neither.
func (e *exam) groupAccess() Finding {
	if e.groupsErr != nil {
		return problem("there are no groups to write to", "see check control-groups").saw(Reading{"/proc/self/mountinfo", "no hierarchy"})
	}
	var saw []Reading
	write, create := true, true
	scratch := e.scratchParent()
	for _, controller := range []string{"cpu", "cpuset"} {
		dir, err := e.groups.Dir(controller, "/")
		if err != nil {
			continue // told by control-groups
		}
		file, fileSaw := e.writable(path.Join(dir, "cgroup.procs"))
		write = write && file
		made, dirSaw := e.writable(dir)
		if parent, err := e.groups.Dir(controller, scratch); err == nil && !made {
			made, dirSaw = e.writable(parent)
		}
		create = create && made
		if !slices.Contains(saw, dirSaw) { // one hierarchy for both on v2
			saw = append(saw, fileSaw, dirSaw)
		}
	}
	switch {
	case !write:
		return problem("budgets and cores of containers cannot be set by this process",
			"run as root, and have the agent's container mount /sys/fs/cgroup of the host for writing").saw(saw...)
	case !create:
		return warning("budgets and cores of containers can be set by this process, but it cannot make one to try a backend out, and passes over hcbs, rtgroup and cfs. The mode of a hierarchy's root lets nobody write to it, that of kubepods does",
			"start the agent when the kubelet has made its groups, or add CAP_DAC_OVERRIDE to securityContext.capabilities.add of the fast path's container").saw(saw...)
	}
	return ok("budgets and cores of containers can be set by this process").saw(saw...)
}

// scratchParent is where the agent makes a group to try a backend out when the hierarchy's root refuses: below the
// kubelet's, where there is one.
func (e *exam) scratchParent() string {
	if roots, err := e.h.KubepodsGroups(); err == nil && len(roots) > 0 {
		return roots[0]
	}
	return "/"
}

// writable asks the kernel without opening.
func (e *exam) writable(file string) (bool, Reading) {
	if err := unix.Access(file, unix.W_OK); err != nil {
		return false, Reading{e.h.Rel(file), "not writable: " + err.Error()}
	}
	return true, Reading{e.h.Rel(file), "writable"}
}
