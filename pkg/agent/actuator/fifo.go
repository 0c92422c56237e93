package actuator

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// fifo has containers run under SCHED_FIFO. When their budget ends, the fast path, which watches the budget, takes that
// policy from their threads: it calls Throttle and Replenish.
type fifo struct{ plain }

func newFIFO(m *machine) *fifo {
	return &fifo{newPlain(m, traits{
		name: FIFO, source: SourceOwn, identity: identityOf(m, FIFO), policy: PolicyFixed,
		guarantee: "firm: budgets are enforced by the agent, tens of microseconds late; while the agent is down " +
			"only the kernel's limit for all real-time tasks holds",
	})}
}

// identityOf is the hierarchy that names a server's group. Where real-time groups are in force, tasks that are to
// be real-time without a budget of their group sit in the root group of cpu, so that only cpuset tells
// them apart.
func identityOf(m *machine, name string) string {
	if name == FIFO && !m.cg.InUnified("cpu") && m.hasRTGroups() == nil {
		return IdentityCpuset
	}
	return IdentityCPU
}

// IdentityOf is the hierarchy whose group names a server of a backend.
func IdentityOf(h host.Host, name string) string {
	cg, err := h.Cgroups()
	if err != nil {
		return IdentityCPU
	}
	return identityOf(&machine{host: h, cg: cg, kernel: linux{h}}, name)
}

// PolicyOf is the policy of a backend, by its name.
func PolicyOf(name string) string {
	if name == HCBS || name == Deadline {
		return PolicyEDF
	}
	return PolicyFixed
}

// buildFIFO has a thread of ours be real-time in the groups that it is in for its trial.
func buildFIFO(m *machine) (Backend, func() error, error) {
	if err := m.placing(); err != nil {
		return nil, nil, err
	}
	// The root group of v2 may run real-time threads even then, but no container is in it.
	if groups, err := m.host.RTGroupSched(); err == nil && groups && m.cg.InUnified("cpu") {
		return nil, nil, errBlocked
	}
	return newFIFO(m), m.tryRealtime, nil
}

func (m *machine) tryRealtime() error {
	return m.kernel.borrow(func(tid int, home map[string]string) error {
		err := m.kernel.setAttr(tid, &unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 1})
		if errors.Is(err, unix.EPERM) {
			return m.whyNoFIFO(home)
		}
		_, demoted := demote(m.kernel, tid)
		return errors.Join(err, demoted)
	})
}

var errNoCpuset = refusal{"the cpuset controller is not there: containers cannot be kept on a core",
	"mount cpuset, or have it in cgroup.subtree_control of every group above"}

// whyNoFIFO explains the kernel's EPERM.
func (m *machine) whyNoFIFO(home map[string]string) error {
	groups, err := m.host.RTGroupSched()
	if capable, known := m.host.Capabilities(); err != nil && known == nil && capable.Has(host.CapSysNice) && m.cg.InUnified("cpu") {
		return errBlocked // the options cannot be read, but nothing else refuses one who has the right
	}
	if err == nil && groups {
		return refusal{fmt.Sprintf("SCHED_FIFO is refused: group %s has no budget for real-time tasks", m.homeIn("cpu", home)),
			"use rtgroup, or run in the root group of the cpu controller"}
	}
	return refusal{"SCHED_FIFO is refused", "give the process CAP_SYS_NICE"}
}

// errBlocked is the trap of several distributions.
var errBlocked = refusal{
	"blocked: the kernel has CONFIG_RT_GROUP_SCHED, and cgroup v2 has no file to give a group real-time budget with: " +
		"SCHED_FIFO fails with EPERM in every container, privileged ones too",
	"boot with rt_group_sched=0 where the kernel knows it (6.15), mount cgroup v1 (systemd.unified_cgroup_hierarchy=0), " +
		"use a kernel without CONFIG_RT_GROUP_SCHED, or one with cpu.rt.max",
}

// Open takes a group over: its threads become real-time with the server's priority.
func (b *fifo) Open(s Server) (Group, error) {
	return b.take(s, func(a *anchor) (threaded, error) {
		g := &fifoGroup{backend: b, anchor: a, core: s.Core, periodUs: s.PeriodUs, known: map[int32]bool{}}
		g.intent.Store(s.BudgetUs)
		g.priority.Store(int32(max(1, s.Priority)))
		g.hot = newHands(b.kernel)
		if b.journal.has(expelled(g.path, g.id())) { // by the process before this one
			g.expel()
		}
		if _, err := g.tend(); err != nil && (!g.crowded.Load() || !errors.Is(err, errCrowded)) { // of that Check goes on to tell
			return nil, err
		}
		delete(b.making, g.id()) // it is not let go of after all
		return g, nil
	})
}
