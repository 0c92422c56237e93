package actuator

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// Files of fair scheduling, v1 and v2.
const (
	cfsQuota  = "cpu.cfs_quota_us"
	cfsPeriod = "cpu.cfs_period_us"
	cfsShares = "cpu.shares"
	cpuMax    = "cpu.max"
	cpuWeight = "cpu.weight"
)

// Bounds of a quota and its period, in microseconds. A period below leastCFSPeriodUs is multiplied: the kernel hands time out in
// slices of 5 ms.
const (
	leastQuotaUs     = 1_000
	leastCFSPeriodUs = 5_000
	mostCFSPeriodUs  = 1_000_000
)

// cfs caps ordinary tasks: nothing is guaranteed.
type cfs struct{ *budgeted }

// Capacity of each core: promises are bounded as with other backends, though the kernel does not guarantee them.
func (c *cfs) Capacity(cores []int) map[int]int64 { return capacity(c.host, cores) }

// buildCFS writes a quota for its trial.
func buildCFS(m *machine) (Backend, func() error, error) {
	if !m.cg.Has("cpu") {
		return nil, nil, refusal{"the cpu controller is not there", "mount it, or have it in cgroup.subtree_control of every group above"}
	}
	if !m.cg.Has("cpuset") {
		return nil, nil, errNoCpuset
	}
	bw := cfsFiles{unified: m.cg.InUnified("cpu")}
	b := &cfs{newBudgeted(m, traits{
		name: CFS, source: SourceOwn, identity: IdentityCPU, policy: PolicyFixed,
		guarantee: "soft: quotas and weights of ordinary tasks; a budget is what a container may use, not what it gets",
	}, bw)}
	return b, func() error { return m.tryOut([]string{"cpu"}, b.tryQuota) }, nil
}

// tryQuota gives a scratch group a quota.
func (c *cfs) tryQuota(group string) error {
	return c.in("cpu", group, func(f files) error {
		err := c.bw.write(c.machine, target{"cpu", group, f}, 0, Budget{testRuntimeUs, testPeriodUs})
		return errors.Join(c.refused(err), c.release(group))
	})
}

// cfsFiles are cpu.cfs_quota_us and cpu.cfs_period_us, or cpu.max. Levels above containers are never
// touched: kubelet owns them.
type cfsFiles struct{ unified bool }

func (cfsFiles) controller() string        { return "cpu" }
func (cfsFiles) names() []string           { return []string{cpuMax, cfsQuota, cfsPeriod} }
func (cfsFiles) perCore() bool             { return false }
func (cfsFiles) managed(Budget) bool       { return false }
func (cfsFiles) window() int64             { return 0 }
func (cfsFiles) share(demand, int64) int64 { return 0 }
func (cfsFiles) most(_, _, _ int64) int64  { return 0 }
func (cfsFiles) first(Server) table.First  { return table.First{} }

// shape brings period and quota within the kernel's bounds. A quota below the least is more than was asked for, which
// harms no other server here: a budget is only a bound.
func (cfsFiles) shape(b Budget) Budget {
	period := b.PeriodUs
	if period < leastCFSPeriodUs {
		period *= (leastCFSPeriodUs + period - 1) / period
	}
	period = min(period, mostCFSPeriodUs)
	return Budget{max(leastQuotaUs, b.RuntimeUs*period/b.PeriodUs), period}
}

func (c cfsFiles) parse(get func(string) (string, error), _ int) (Budget, error) {
	if c.unified {
		text, err := get(cpuMax)
		if err != nil {
			return Budget{}, err
		}
		return parseMax(text)
	}
	quota, err := get(cfsQuota)
	if err != nil {
		return Budget{}, err
	}
	period, err := get(cfsPeriod)
	if err != nil {
		return Budget{}, err
	}
	if strings.TrimSpace(quota) == "-1" {
		quota = "max"
	}
	return parseMax(quota + " " + period)
}

// parseMax reads "<runtime>|max <period>"; max is -1. With max the period may be 0: so do the groups begin that HCBS makes.
func parseMax(text string) (Budget, error) {
	runtime, period, found := strings.Cut(strings.TrimSpace(text), " ")
	switch {
	case !found:
		return Budget{}, fmt.Errorf("budget %q; want a runtime or max, and a period", text)
	case runtime == "max" && period == "0":
		return Budget{RuntimeUs: -1}, nil
	case runtime == "max":
		b, err := parseBudget("0", period)
		b.RuntimeUs = -1
		return b, err
	}
	return parseBudget(runtime, period)
}

// write quota, period and a weight in proportion, which counts among the containers of a pod.
func (c cfsFiles) write(m *machine, t target, _ int, b Budget) error {
	if b.RuntimeUs <= 0 {
		return nil
	}
	weight := max(1, min(10_000, 10_000*b.RuntimeUs/b.PeriodUs))
	if c.unified {
		if err := m.keep(t, cpuMax, cpuWeight); err != nil { // also where it has the value that is wanted now: the hot side writes others
			return err
		}
		if err := m.set(t, cpuMax, fmt.Sprintf("%d %d", b.RuntimeUs, b.PeriodUs)); err != nil {
			return err
		}
		return m.set(t, cpuWeight, itoa(weight))
	}
	held, err := c.parse(t.read, 0)
	if err != nil {
		return asGone(err)
	}
	if err := m.keep(t, cfsPeriod, cfsQuota); err != nil {
		return err
	}
	err = inOrder(held, b,
		func(runtime int64) error { return m.set(t, cfsQuota, itoa(runtime)) },
		func(period int64) error { return m.set(t, cfsPeriod, itoa(period)) })
	return errors.Join(err, m.set(t, cfsShares, itoa(max(2, weight*1024/100))))
}

func (c cfsFiles) hot(f files, _ int, periodUs int64) (*hotFile, error) {
	name, suffix := cfsQuota, ""
	shaped := c.shape(Budget{0, periodUs}).PeriodUs
	if c.unified {
		name, suffix = cpuMax, " "+strconv.FormatInt(shaped, 10)
	}
	h, err := openHot(f, name, "", suffix)
	if err == nil {
		h.times, h.by, h.least = shaped, periodUs, leastQuotaUs
	}
	return h, err
}
