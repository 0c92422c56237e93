// Package table holds what the two processes of the node agent tell each other: the Table of what the
// fast path should do, and the Report of what it did. Both travel as JSON over a Unix socket. The
// package imports no Kubernetes types, so that the fast path stays a small process.
package table

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// MaxServers is how many servers a node may have, as in RTNode.spec.
const MaxServers = 2048

// MaxCore is the highest number that a core may have.
const MaxCore = 1023

// Modes of a server.
const (
	// Elastic: the kernel's budget is low_us and is raised shortly before it ends.
	Elastic = "Elastic"
	// Reserved: the kernel's budget is high_us from the start; low_us only raises an alarm.
	Reserved = "Reserved"
)

// Table is everything that the fast path needs to govern a node alone.
type Table struct {
	// Generation of what the table was made from; reported back once it is applied.
	Generation int64 `json:"generation"`
	// Origin tells that from another of the same name: the UID of the RTNode.
	Origin string `json:"origin,omitempty"`
	// Servers that should run, by ID.
	Servers []Server `json:"servers"`
	// Plans, at most one for each core.
	Plans []Plan `json:"plans"`
}

// Server is a container with its budgets, in microseconds.
type Server struct {
	// ID names it: podUID/container, or the name of a standalone server.
	ID string `json:"id"`
	// Label is what people call it: namespace/pod/container.
	Label string `json:"label,omitempty"`
	// Cgroup is the path of the container's group below the root of each hierarchy, beginning with a
	// slash: /kubepods/burstable/pod<UID>/<container>. Empty while the container does not run.
	Cgroup string `json:"cgroup,omitempty"`
	// ContainerID is the runtime's name of the container, for those who ask by it.
	ContainerID string `json:"containerID,omitempty"`
	// Criticality: Low, Middle or High.
	Criticality string `json:"criticality"`
	PeriodUs    int64  `json:"periodUs"`
	DeadlineUs  int64  `json:"deadlineUs"`
	LowUs       int64  `json:"lowUs"`
	HighUs      int64  `json:"highUs"`
	// LevelsUs are budgets between low and high, ascending.
	LevelsUs []int64 `json:"levelsUs,omitempty"`
	// LeastUs is the least budget asked for, from low to high.
	LeastUs int64 `json:"leastUs"`
	// Core is the one that it runs on.
	Core int `json:"core"`
	// Mode: Elastic or Reserved.
	Mode string `json:"mode"`
	// Limited: of the core's Limited servers, Plan.MaxRaised at a time may be above low. Where that is 0 it means nothing.
	Limited bool `json:"limited,omitempty"`
	// Overruns in the last Periods periods after which it is raised; 1 of 1 is at once.
	Overruns int `json:"overruns"`
	Periods  int `json:"periods"`
	// DwellUs is how long a raised budget is kept at least.
	DwellUs int64 `json:"dwellUs"`
}

// Plan is what may be done on a core without asking (v1alpha1.RTCorePlan).
type Plan struct {
	Core int `json:"core"`
	// ThresholdPpm is what budgets may be promised together, granularity included.
	ThresholdPpm int64 `json:"thresholdPpm"`
	// MaxRaised is how many Limited servers may be above low at once; 0: they are as any other.
	MaxRaised int       `json:"maxRaised,omitempty"`
	Raise     []Raise   `json:"raise,omitempty"`
	Squeeze   []Squeeze `json:"squeeze,omitempty"`
}

// Raise is a server that may be raised at once, up to ToUs.
type Raise struct {
	ID   string `json:"id"`
	ToUs int64  `json:"toUs"`
}

// Squeeze is a server that gives way, first to last, never below FloorUs.
type Squeeze struct {
	ID      string `json:"id"`
	FloorUs int64  `json:"floorUs"`
}

// Validate says what is wrong with a table: the field, its value, and what would be right. All faults are
// joined. A plan that names servers which the table has not is no fault: it is older than the containers.
func (t Table) Validate() error {
	var faults []error
	if len(t.Servers) > MaxServers {
		faults = append(faults, fmt.Errorf("servers has %d entries; want at most %d", len(t.Servers), MaxServers))
	}
	seen, groups := map[string]bool{}, map[string]string{}
	for i, s := range t.Servers {
		if err := s.Validate(); err != nil {
			faults = append(faults, fmt.Errorf("servers[%d] %q: %w", i, s.ID, err))
		}
		if seen[s.ID] {
			faults = append(faults, fmt.Errorf("servers[%d].id %q is there twice", i, s.ID))
		}
		seen[s.ID] = true
		if other, taken := groups[s.Cgroup]; taken && s.Cgroup != "" {
			faults = append(faults, fmt.Errorf("servers[%d].cgroup %q is also that of %q", i, s.Cgroup, other))
		}
		groups[s.Cgroup] = s.ID
	}
	cores := map[int]bool{}
	for i, p := range t.Plans {
		if err := p.validate(); err != nil {
			faults = append(faults, fmt.Errorf("plans[%d]: %w", i, err))
		}
		if cores[p.Core] {
			faults = append(faults, fmt.Errorf("plans[%d].core %d is there twice", i, p.Core))
		}
		cores[p.Core] = true
	}
	return errors.Join(faults...)
}

// Validate says what is wrong with a server.
func (s Server) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if s.ID == "" {
		fault("id is empty; want a unique name")
	}
	if s.Core < 0 || s.Core > MaxCore {
		fault("core %d; want 0 to %d", s.Core, MaxCore)
	}
	if s.Cgroup != "" && (!strings.HasPrefix(s.Cgroup, "/") || path.Clean(s.Cgroup) != s.Cgroup || s.Cgroup == "/") {
		fault("cgroup %q; want a clean absolute path below the root", s.Cgroup)
	}
	if s.LeastUs < s.LowUs || s.LeastUs > s.HighUs {
		fault("leastUs %d; want lowUs %d to highUs %d", s.LeastUs, s.LowUs, s.HighUs)
	}
	_, err := s.RT()
	return errors.Join(append(faults, s.validateEscalation(), err)...)
}

// validateEscalation says what is wrong with how a server is raised.
func (s Server) validateEscalation() error {
	switch {
	case s.Mode != Elastic && s.Mode != Reserved:
		return fmt.Errorf("mode %q; want %s or %s", s.Mode, Elastic, Reserved)
	case s.Overruns < 1 || s.Periods < s.Overruns || s.Periods > MaxPeriods:
		return fmt.Errorf("overruns %d of periods %d; want 1 <= overruns <= periods <= %d", s.Overruns, s.Periods, MaxPeriods)
	case s.DwellUs < 0 || s.DwellUs > MaxDwellUs:
		return fmt.Errorf("dwellUs %d; want 0 to %d", s.DwellUs, int64(MaxDwellUs))
	}
	return nil
}

// MaxDwellUs is a day: what it is doubled to must be a time, too.
const MaxDwellUs = 24 * 3600 * 1_000_000

// MaxPeriods is the longest window in which overruns are counted.
const MaxPeriods = 64

// RT is the server as the theory knows it. The error names field, value and bound.
func (s Server) RT() (rt.Server, error) {
	criticality, err := rt.ParseCriticality(s.Criticality)
	if err != nil {
		return rt.Server{}, fmt.Errorf("criticality: %w", err)
	}
	out := rt.Server{
		ID: s.ID, Criticality: criticality, Period: s.PeriodUs, Deadline: s.DeadlineUs, Low: s.LowUs, High: s.HighUs,
		Levels: s.LevelsUs, Limited: s.Limited,
	}
	return out, out.Validate()
}

func (p Plan) validate() error {
	switch {
	case p.Core < 0 || p.Core > MaxCore:
		return fmt.Errorf("core %d; want 0 to %d", p.Core, MaxCore)
	case p.ThresholdPpm < 0 || rt.PPM(p.ThresholdPpm) > rt.OneCore:
		return fmt.Errorf("thresholdPpm %d; want 0 to %d", p.ThresholdPpm, rt.OneCore)
	case p.MaxRaised < 0:
		return fmt.Errorf("maxRaised %d; want at least 0", p.MaxRaised)
	}
	return nil
}

// Plan of a core; empty, so that nothing may be raised, where the table has none.
func (t Table) Plan(core int) Plan {
	i := slices.IndexFunc(t.Plans, func(p Plan) bool { return p.Core == core })
	if i < 0 {
		return Plan{Core: core}
	}
	return t.Plans[i]
}

// Sorted returns the table with servers and plans in order.
func (t Table) Sorted() Table {
	t.Servers, t.Plans = slices.Clone(t.Servers), slices.Clone(t.Plans)
	slices.SortFunc(t.Servers, func(a, b Server) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(t.Plans, func(a, b Plan) int { return cmp.Compare(a.Core, b.Core) })
	return t
}
