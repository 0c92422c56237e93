package actuator

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// accept is what the kernel makes of a write: the text that the file then holds, or its refusal.
func (k *simKernel) accept(dir, name, value, old string) (string, error) {
	switch name {
	case rtRuntime, rtPeriod:
		return value, k.acceptRT(dir, name, value)
	case rtMulti:
		return k.acceptMulti(dir, value, old)
	case rtMax:
		return value, k.acceptMax(dir, value)
	case cfsQuota, cfsPeriod:
		return value, k.acceptQuota(dir, name, value)
	case cpusetCPUs:
		return k.acceptCPUs(dir, value)
	}
	return value, nil
}

func number(dir, file string) int64 {
	n, _ := strconv.ParseInt(slurp(filepath.Join(dir, file)), 10, 64)
	return n
}

// ratio is the kernel's to_ratio.
func ratio(runtime, period int64) int64 {
	if period == 0 {
		return 0
	}
	return (runtime * 1000 << 20) / (period * 1000)
}

// acceptRT is tg_rt_schedulable: over the whole tree, the ratios of the children of each group are at most its own; no
// group loses the last budget while it has real-time tasks.
func (k *simKernel) acceptRT(dir, name, value string) error {
	if name == rtPeriod && slurp(filepath.Join(dir, rtMulti)) != "" {
		return nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		return unix.EINVAL
	}
	runtime, period := number(dir, rtRuntime), number(dir, rtPeriod)
	if name == rtRuntime {
		if n == 0 && runtime > 0 && k.hasRealtime(dir) {
			return unix.EBUSY
		}
		runtime = n
	} else {
		period = n
	}
	if period == 0 || runtime > period {
		return unix.EINVAL
	}
	read := func(d string) int64 {
		if d == dir {
			return ratio(runtime, period)
		}
		return ratio(number(d, rtRuntime), number(d, rtPeriod))
	}
	root := k.root("cpu")
	held := read(root)
	for _, r := range k.dying {
		held -= r
	}
	return k.fitsBelow(root, held, read)
}

// fitsBelow checks a level and all below it.
func (k *simKernel) fitsBelow(dir string, own int64, read func(string) int64) error {
	names, _ := k.children(dir)
	var sum int64
	for _, name := range names {
		child := filepath.Join(dir, name)
		r := read(child)
		sum += r
		if err := k.fitsBelow(child, r, read); err != nil {
			return err
		}
	}
	if sum > own {
		return unix.EINVAL
	}
	return nil
}

func (k *simKernel) hasRealtime(dir string) bool {
	for _, th := range k.threads {
		if realtime(th.attr.Policy) && slices.Contains(values(th.groups), dir) {
			return true
		}
	}
	return false
}

// acceptMulti is the same for every CPU alone.
func (k *simKernel) acceptMulti(dir, value, old string) (string, error) {
	fields := strings.Fields(value)
	if len(fields) != 2 {
		return "", unix.EINVAL
	}
	cpus, err := host.ParseCPUList(fields[0])
	n, bad := strconv.ParseInt(fields[1], 10, 64)
	if err != nil || bad != nil || n < 0 {
		return "", unix.EINVAL
	}
	runtimes, _ := parseMulti(old)
	for _, c := range cpus {
		if c >= len(runtimes) {
			return "", unix.EINVAL
		}
		runtimes[c] = n
	}
	if n == 0 && !slices.ContainsFunc(runtimes, func(r int64) bool { return r > 0 }) && k.hasRealtime(dir) {
		return "", unix.EBUSY
	}
	for _, c := range cpus {
		read := func(d string) int64 {
			period := number(d, rtPeriod)
			held, _ := parseMulti(slurp(filepath.Join(d, rtMulti)))
			if d == dir {
				held = runtimes
			}
			if c >= len(held) {
				return 0
			}
			return ratio(held[c], period)
		}
		if err := k.fitsBelow(k.root("cpu"), ratio(950_000, 1_000_000), read); err != nil {
			return "", err
		}
		if n > number(dir, rtPeriod) {
			return "", unix.EINVAL
		}
	}
	var out []string
	for _, r := range runtimes {
		out = append(out, itoa(r))
	}
	return strings.Join(out, " "), nil
}

// acceptMax: budgets of a group's nearest descendants that have one add up to at most its own.
func (k *simKernel) acceptMax(dir, value string) error {
	b, err := simMax(value)
	if err != nil || b.RuntimeUs > b.PeriodUs {
		return unix.EINVAL
	}
	if b.RuntimeUs == 0 && k.hasRealtime(dir) {
		return unix.EBUSY
	}
	var given func(d string) int64 // by the group, or by those below it where it has max
	given = func(d string) int64 {
		own, _ := simMax(slurp(filepath.Join(d, rtMax)))
		if d == dir {
			own = b
		}
		if own.RuntimeUs >= 0 && d != k.root("cpu") {
			return ratio(own.RuntimeUs, own.PeriodUs)
		}
		return k.givenBelow(d, given)
	}
	var check func(d string) error
	check = func(d string) error {
		own, _ := simMax(slurp(filepath.Join(d, rtMax)))
		if d == dir {
			own = b
		}
		if own.RuntimeUs >= 0 && k.givenBelow(d, given) > ratio(own.RuntimeUs, own.PeriodUs) {
			return unix.EINVAL
		}
		names, _ := k.children(d)
		for _, name := range names {
			if err := check(filepath.Join(d, name)); err != nil {
				return err
			}
		}
		return nil
	}
	return check(k.root("cpu"))
}

func (k *simKernel) givenBelow(dir string, given func(string) int64) int64 {
	names, _ := k.children(dir)
	var sum int64
	for _, name := range names {
		sum += given(filepath.Join(dir, name))
	}
	return sum
}

// acceptQuota: of v1, no group may have a larger share than the one above it.
func (k *simKernel) acceptQuota(dir, name, value string) error {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || (name == cfsPeriod && (n < 1_000 || n > 1_000_000)) || (name == cfsQuota && n >= 0 && n < 1_000) {
		return unix.EINVAL
	}
	quota, period := number(dir, cfsQuota), number(dir, cfsPeriod)
	if name == cfsQuota {
		quota = n
	} else {
		period = n
	}
	for up := filepath.Dir(dir); quota >= 0 && strings.HasPrefix(up, k.root("cpu")+"/"); up = filepath.Dir(up) {
		if above := number(up, cfsQuota); above >= 0 && ratio(quota, period) > ratio(above, number(up, cfsPeriod)) {
			return unix.EINVAL
		}
	}
	return nil
}

// acceptCPUs: of v1, a set is within that of the group above, holds those of the groups below, and is not
// emptied under tasks.
func (k *simKernel) acceptCPUs(dir, value string) (string, error) {
	cpus, err := host.ParseCPUList(value)
	if err != nil {
		return "", unix.EINVAL
	}
	if k.cg.InUnified("cpuset") {
		return host.FormatCPUList(cpus), nil
	}
	if len(cpus) == 0 && (&simFiles{k: k, dir: dir}).taskList() != "" {
		return "", unix.ENOSPC
	}
	if root := k.root("cpuset"); dir != root {
		up, _ := host.ParseCPUList(slurp(filepath.Join(filepath.Dir(dir), cpusetCPUs)))
		if !within(cpus, up) {
			return "", unix.EACCES
		}
	}
	names, _ := k.children(dir)
	for _, name := range names {
		child, _ := host.ParseCPUList(slurp(filepath.Join(dir, name, cpusetCPUs)))
		if !within(child, cpus) {
			return "", unix.EBUSY
		}
	}
	return host.FormatCPUList(cpus), nil
}

func within(cpus, of []int) bool {
	return !slices.ContainsFunc(cpus, func(c int) bool { return !slices.Contains(of, c) })
}

// simMax is the kernel's cpu_period_quota_parse: with max the period may be anything, 0 too.
func simMax(text string) (Budget, error) {
	if strings.HasPrefix(text, "max") {
		return Budget{RuntimeUs: -1, PeriodUs: 1}, nil
	}
	return parseMax(text)
}
