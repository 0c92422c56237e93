package actuator

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

type simThread struct {
	attr    unix.SchedAttr
	groups  map[string]string // by hierarchy directory
	started uint64
}

func (k *simKernel) attr(tid int, a *unix.SchedAttr) error {
	if k.reading != nil {
		k.reading(tid)
	}
	th := k.threads[tid]
	if th == nil {
		return unix.ESRCH
	}
	*a = th.attr
	return nil
}

func (k *simKernel) setAttr(tid int, a *unix.SchedAttr) error {
	if err := k.step(fmt.Sprintf("setattr %d policy %d priority %d", tid, a.Policy, a.Priority)); err != nil {
		return err
	}
	if k.changing != nil {
		k.changing(tid)
	}
	th := k.threads[tid]
	switch {
	case th == nil:
		return unix.ESRCH
	case k.refuseAll && a.Policy != unix.SCHED_NORMAL:
		return unix.EPERM
	case k.fullOfDeadlines && a.Policy == unix.SCHED_DEADLINE && th.attr.Policy != unix.SCHED_DEADLINE:
		return unix.EBUSY
	case realtime(a.Policy) && !k.mayRealtime(th):
		return unix.EPERM
	case a.Policy == unix.SCHED_DEADLINE && (k.narrow(th) || k.pinned[tid]):
		return unix.EPERM
	}
	th.attr = *a
	return nil
}

// mayRealtime: where groups have budgets, a real-time thread needs one. The root's tasks need none.
func (k *simKernel) mayRealtime(th *simThread) bool {
	root := k.root("cpu")
	dir := th.groups[root]
	if dir == "" || dir == root {
		return true
	}
	if text := slurp(filepath.Join(dir, rtMulti)); text != "" {
		return strings.Trim(text, "0 ") != ""
	}
	if text := slurp(filepath.Join(dir, rtMax)); text != "" {
		return !strings.HasPrefix(text, "0 ")
	}
	if _, err := os.Stat(filepath.Join(dir, rtRuntime)); err == nil {
		return number(dir, rtRuntime) > 0
	}
	return true
}

// narrow: a thread that may not run on every CPU of its scheduling domain.
func (k *simKernel) narrow(th *simThread) bool {
	dir := th.groups[k.root("cpuset")]
	if dir == "" || dir == k.root("cpuset") {
		return false
	}
	cpus := slurp(filepath.Join(dir, cpusetCPUs))
	return cpus != "0-3" && (cpus != "" || !k.cg.InUnified("cpuset"))
}

func (k *simKernel) started(tid int) (uint64, error) {
	if th := k.threads[tid]; th != nil {
		return th.started, nil
	}
	return 0, fs.ErrNotExist
}

func (k *simKernel) progress(tid int) (uint64, byte, error) {
	state := byte('S')
	if k.stuck[tid] {
		state = runnable
	}
	return 7 + k.usedNs[tid], state, nil
}

func (k *simKernel) borrow(do func(int, map[string]string) error) error {
	k.newThread++
	tid := k.newThread
	th := &simThread{groups: map[string]string{}, started: uint64(tid)}
	for _, c := range []string{"cpu", "cpuset"} {
		th.groups[k.root(c)] = k.root(c)
	}
	k.threads[tid] = th
	defer delete(k.threads, tid)
	return do(tid, nil)
}

func (k *simKernel) tickUs() int64 { return 4_000 }

func (k *simKernel) pause(time.Duration) {
	if k.pausing != nil {
		k.pausing()
	}
	if len(k.dying) > 0 {
		k.dying = k.dying[:len(k.dying)-1]
	}
}
