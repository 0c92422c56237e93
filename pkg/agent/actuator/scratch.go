package actuator

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// scratchName is the group in which backends are tried out.
const scratchName = "/mainspring-probe"

// tryOut makes a scratch group in hierarchies, and removes it.
func (m *machine) tryOut(controllers []string, do func(group string) error) error {
	err := m.makeScratch(controllers)
	if errors.Is(err, fs.ErrPermission) && m.scratch == scratchName {
		// A process needs CAP_DAC_OVERRIDE to make groups at the top, whose directory is not writable. Below the
		// kubelet's group it only needs the right to write its files.
		if groups, _ := m.host.KubepodsGroups(); len(groups) > 0 {
			m.scratch = groups[0] + scratchName
			err = m.makeScratch(controllers)
		}
	}
	if err != nil {
		return m.refused(fmt.Errorf("making a scratch group: %w", err))
	}
	return errors.Join(do(m.scratch), m.removeScratch(controllers))
}

// makeScratch makes the scratch group in hierarchies; one that a former process left is removed first.
func (m *machine) makeScratch(controllers []string) error {
	if err := m.removeScratch(controllers); err != nil {
		return err
	}
	for _, c := range m.distinct(controllers) {
		root, err := m.cg.Dir(c, "/")
		if err != nil {
			return err
		}
		if err := m.kernel.mkdir(filepath.Join(root, m.scratch)); err != nil {
			return err
		}
	}
	return nil
}

func (m *machine) removeScratch(controllers []string) error {
	for _, c := range m.distinct(controllers) {
		dir, err := m.cg.Dir(c, m.scratch)
		if gone(err) {
			continue
		}
		if err != nil {
			return err
		}
		// Bandwidth of a group whose budget is zero is free at once, not when the group is torn down.
		_ = m.in(c, m.scratch, func(f files) error { return f.write(rtRuntime, "0") })
		remove := func() error {
			if err := m.kernel.rmdir(dir); errors.Is(err, unix.EBUSY) {
				return fmt.Errorf("%w: %w", ErrNoRoom, err) // a thread that just ended is still being taken out
			} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		}
		if err := m.patiently(remove, func() bool { return true }); err != nil {
			return fmt.Errorf("removing the scratch group %s: %w", dir, err)
		}
	}
	return nil
}

// distinct leaves one of the controllers that share a hierarchy.
func (m *machine) distinct(controllers []string) []string {
	seen := map[string]bool{}
	var out []string
	for _, c := range controllers {
		if dir, err := m.cg.Dir(c, "/"); err != nil || !seen[dir] {
			seen[dir] = true
			out = append(out, c)
		}
	}
	return out
}

// onThread runs a function on a thread of ours in the scratch group, and takes the thread out again.
func (m *machine) onThread(controllers []string, do func(tid int) error) error {
	return m.kernel.borrow(func(tid int, home map[string]string) error {
		for _, c := range m.distinct(controllers) {
			if err := m.attach(c, m.scratch, tid); err != nil {
				return err
			}
		}
		err := do(tid)
		_, demoted := demote(m.kernel, tid)
		err = errors.Join(err, demoted)
		for _, c := range m.distinct(controllers) {
			err = errors.Join(err, m.attach(c, m.homeIn(c, home), tid))
		}
		return err
	})
}

// homeIn is the group that a thread came from in a controller's hierarchy.
func (m *machine) homeIn(controller string, home map[string]string) string {
	if m.cg.InUnified(controller) {
		controller = host.Unified
	}
	return cmp.Or(home[controller], "/")
}

// attach a thread to a group.
func (m *machine) attach(controller, group string, tid int) error {
	name := "tasks"
	if m.cg.InUnified(controller) || controller == host.Unified {
		name = "cgroup.threads"
	}
	return m.in(controller, group, func(f files) error {
		if err := f.write(name, strconv.Itoa(tid)); err != nil {
			return describe(group, name, strconv.Itoa(tid), err)
		}
		return nil
	})
}

// tryFIFO lets a thread of ours be real-time in the scratch group.
func (m *machine) tryFIFO() error {
	return m.onThread([]string{"cpu"}, func(tid int) error {
		err := m.tryPolicy(tid, unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 1})
		if errors.Is(err, unix.EPERM) {
			return refusal{"SCHED_FIFO is refused: " + err.Error(), "give the process CAP_SYS_NICE"}
		}
		return err
	})
}

// tryPolicy gives the calling thread a policy and takes it again, from another thread while this one sleeps. Were it to run meanwhile and be held up
// for a few milliseconds (by the hypervisor, say), it would be throttled for a thousand times as long, so small are the budgets of trials. And a
// level above, whose time others have used, would throttle it at its first tick, and every other group below for up to a minute.
func (m *machine) tryPolicy(tid int, attr unix.SchedAttr) error {
	tried := make(chan error, 1)
	go func() {
		m.awaitSleep(tid)
		err := m.kernel.setAttr(tid, &attr)
		if err == nil {
			err = m.kernel.setAttr(tid, &unix.SchedAttr{Policy: unix.SCHED_NORMAL})
		}
		tried <- err
	}()
	return <-tried
}

// awaitSleep waits until a thread that is about to sleep does, for a few milliseconds at most.
func (m *machine) awaitSleep(tid int) {
	const tries = 50
	for range tries {
		if _, state, err := m.kernel.progress(tid); err != nil || state != runnable {
			return
		}
		m.kernel.pause(100 * time.Microsecond)
	}
}

// LeaveGroup moves this process into the root group of the cpu controller when its own group has no budget
// for real-time tasks, without which none of its threads may become one. Elsewhere there is nothing to do.
func LeaveGroup(h host.Host) error {
	cg, err := h.Cgroups()
	if err != nil || cg.InUnified("cpu") || !cg.Has("cpu") {
		return err
	}
	m := &machine{host: h, cg: cg, kernel: linux{h}}
	text, err := os.ReadFile(h.Proc("self", "cgroup"))
	if err != nil {
		return fmt.Errorf("leaving the process's group: %w", err)
	}
	own := parseMembership(string(text))["cpu"]
	if own == "/" || own == "" {
		return nil
	}
	budget, err := Budget{}, error(nil)
	err = m.in("cpu", own, func(f files) (err error) {
		budget, err = rtFiles{}.parse(f.read, 0)
		return err
	})
	if budget.RuntimeUs > 0 || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return m.in("cpu", "/", func(f files) error {
		if err := f.write("cgroup.procs", strconv.Itoa(os.Getpid())); err != nil {
			return describe("/", "cgroup.procs", strconv.Itoa(os.Getpid()), err)
		}
		return nil
	})
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
