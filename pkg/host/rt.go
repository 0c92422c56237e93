package host

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"
)

const million = 1_000_000

// maxServerPeriodNs is an hour: the kernel's own bound is 4 s, and beyond 9,000 s a ratio in millionths overflows.
const maxServerPeriodNs = 3600 * 1_000_000_000

// RTLimits are kernel.sched_rt_runtime_us and kernel.sched_rt_period_us: how much of each period real-time
// tasks may use. A runtime of -1 is no limit.
func (h Host) RTLimits() (runtimeUs, periodUs int64, err error) {
	if runtimeUs, err = readInt(h.Proc("sys", "kernel", "sched_rt_runtime_us")); err != nil {
		return 0, 0, fmt.Errorf("reading real-time limits: %w", err)
	}
	if periodUs, err = readInt(h.Proc("sys", "kernel", "sched_rt_period_us")); err != nil {
		return 0, 0, fmt.Errorf("reading real-time limits: %w", err)
	}
	if periodUs <= 0 || periodUs > math.MaxInt32 || runtimeUs < -1 || runtimeUs > periodUs {
		return 0, 0, fmt.Errorf("reading real-time limits: runtime %d of period %d us makes no sense", runtimeUs, periodUs)
	}
	return runtimeUs, periodUs, nil
}

// DefaultFairServer is the bandwidth that a kernel with deadline servers keeps for ordinary tasks on every
// core unless told otherwise: 50 ms of each second, in millionths.
const DefaultFairServer int64 = 50_000

// FairServer is the bandwidth, in millionths, that the kernel keeps for ordinary tasks of a core. It is
// not known when debugfs cannot be read (locked down, or not mounted): then it is what
// kernels with such a server keep by default, which never promises too much.
func (h Host) FairServer(core int) (ppm int64, known bool) {
	ppm, err := h.deadlineServer("fair_server", core)
	if err != nil {
		return DefaultFairServer, false
	}
	return ppm, true
}

// ExtServer is the same for tasks of sched_ext. Unknown counts as none: few kernels have it, and it takes
// its time only while such a scheduler is loaded.
func (h Host) ExtServer(core int) (ppm int64, known bool) {
	ppm, err := h.deadlineServer("ext_server", core)
	return ppm, err == nil
}

// deadlineServer reads /sys/kernel/debug/sched/<server>/cpu<n>; a kernel whose debugfs has no such
// server has none.
func (h Host) deadlineServer(server string, core int) (int64, error) {
	dir := []string{"kernel", "debug", "sched"}
	if _, err := readString(h.Sys(append(dir, "features")...)); err != nil {
		return 0, err
	}
	dir = append(dir, server, "cpu"+strconv.Itoa(core))
	runtime, err := readInt(h.Sys(append(dir, "runtime")...))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	period, err := readInt(h.Sys(append(dir, "period")...))
	if err != nil {
		return 0, err
	}
	if runtime < 0 || period <= 0 || period > maxServerPeriodNs || runtime > period {
		return 0, fmt.Errorf("%s of core %d: runtime %d of period %d ns makes no sense", server, core, runtime, period)
	}
	return (runtime*million + period - 1) / period, nil // rounded up
}

// SchedFeatures are the scheduler's feature flags from debugfs: true when on. ErrUnsupported, wrapped, when
// debugfs has none; fs.ErrPermission when the kernel is locked down.
func (h Host) SchedFeatures() (map[string]bool, error) {
	text, err := readString(h.Sys("kernel", "debug", "sched", "features"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading scheduler features: %w: %w", ErrUnsupported, err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading scheduler features: %w", err)
	}
	return parseSchedFeatures(text), nil
}
