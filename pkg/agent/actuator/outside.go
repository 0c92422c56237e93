package actuator

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	// outsideEvery is in how many checks threads are looked for outside their cpuset where nothing hints at any.
	outsideEvery = 10
	// gatherRounds bounds one look: threads that are moved may be making others.
	gatherRounds = 8
)

// gather moves threads of the group that are in a cpuset above its own back into it, and says how many. When the last CPU of a cpuset of cgroup v1
// goes offline the kernel empties it, and moves its tasks to the nearest above that has CPUs; it undoes neither when the CPU is back.
func (a *anchor) gather() (drift []string, err error) {
	if a.cpusDir == a.dir || a.machine.unifiedCpuset() {
		return nil, nil
	}
	if a.rest > 0 {
		a.rest--
		return nil, nil
	}
	moved, found := 0, 1
	for round := 0; err == nil && found > 0 && round < gatherRounds; round++ {
		found, err = a.gatherOnce()
		moved += found
	}
	if err == nil && found > 0 {
		err = fmt.Errorf("threads of %s appear outside its cpuset faster than they are moved back: %w", a.path, ErrBusy)
	}
	if err == nil {
		a.rest = outsideEvery - 1
	}
	if moved > 0 {
		drift = []string{fmt.Sprintf("%d threads of %s were in cpusets above its own", moved, a.path)}
	}
	return drift, err
}

// gatherOnce moves those that are listed now.
func (a *anchor) gatherOnce() (moved int, err error) {
	outside, err := a.outside()
	levels := append([]string{"/"}, above(a.path)...)
	for _, level := range slices.Backward(levels) { // the kernel takes the nearest
		if err != nil || len(outside) == 0 {
			break
		}
		err = a.machine.inCpuset(level, func(t target) error {
			there, err := a.machine.threadsOf(t)
			if err != nil {
				return fmt.Errorf("listing the threads in cpuset %s: %w", level, asGone(err))
			}
			for _, tid := range there {
				if !outside[tid] {
					continue
				}
				if err := a.bring(tid); err != nil {
					return err
				}
				delete(outside, tid)
				moved++
			}
			return nil
		})
	}
	return moved, err
}

// bring a thread into the group's cpuset. One that has ended is there as well as anywhere.
func (a *anchor) bring(tid int32) error {
	err := a.cpus.write("tasks", itoa(int64(tid))+"\n")
	if err == nil || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return describe(a.path, "tasks", itoa(int64(tid)), err)
}

// outside are the threads of the group, and of those that the container made below it, that its own cpuset does not list.
func (a *anchor) outside() (map[int32]bool, error) {
	dirs, err := a.tree()
	if err != nil {
		return nil, err
	}
	out := map[int32]bool{}
	for _, dir := range dirs {
		if err := a.machine.listIn(dir, func(tids []int32) {
			for _, tid := range tids {
				out[tid] = true
			}
		}); err != nil {
			return nil, err
		}
	}
	inside, err := a.machine.threadsOf(a.cpus)
	if err != nil {
		return nil, fmt.Errorf("listing the threads in the cpuset of %s: %w", a.path, asGone(err))
	}
	for _, tid := range inside {
		delete(out, tid)
	}
	return out, nil
}
