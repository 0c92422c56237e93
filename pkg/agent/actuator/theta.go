package actuator

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

const (
	million int64 = 1_000_000
	// roundingPpm is kept back of the pot for groups: the kernel rounds ratios to 2^-20.
	roundingPpm int64 = 500
)

// theta is what servers may use of a core together: what the kernel leaves real-time tasks, less what it
// keeps for ordinary tasks by deadline servers. Deadline tasks of the host and our own threads have what is left beside it.
func theta(h host.Host, core int) int64 {
	runtime, period, err := h.RTLimits()
	if err != nil {
		return 0
	}
	fair, _ := h.FairServer(core)
	ext, _ := h.ExtServer(core)
	return int64(rt.Capacity(rt.Host{RTRuntime: runtime, RTPeriod: period, FairServer: rt.PPM(fair), ExtServer: rt.PPM(ext)}))
}

// capacity of each core where cores do not share.
func capacity(h host.Host, cores []int) map[int]int64 {
	out := make(map[int]int64, len(cores))
	for _, core := range cores {
		out[core] = theta(h, core)
	}
	return out
}

// validate names every field that makes no sense.
func (s Server) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if !strings.HasPrefix(s.Cgroup, "/") || path.Clean(s.Cgroup) != s.Cgroup || s.Cgroup == "/" {
		fault("cgroup %q; want the clean absolute path of a group below the root", s.Cgroup)
	}
	if s.PeriodUs <= 0 || s.PeriodUs > rt.MaxPeriod {
		fault("periodUs %d; want above 0 and at most %d", s.PeriodUs, rt.MaxPeriod)
	}
	if s.HighUs <= 0 || s.HighUs > s.PeriodUs {
		fault("highUs %d; want above 0 and at most the period, %d", s.HighUs, s.PeriodUs)
	}
	if s.BudgetUs < 0 || s.BudgetUs > s.HighUs {
		fault("budgetUs %d; want 0 to highUs, %d", s.BudgetUs, s.HighUs)
	}
	if s.Core < 0 || s.Core > host.MaxCPU {
		fault("core %d; want 0 to %d", s.Core, host.MaxCPU)
	}
	return errors.Join(faults...)
}
