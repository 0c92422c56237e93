package standalone

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// Priorities of commands whose file gives none: by deadline, the longest lowest, as the fast path gives them
// where it chooses.
const (
	LeastPriority = 10
	MaxPriority   = 85
)

// RefusedError tells that a core cannot keep the promises of its servers.
type RefusedError struct {
	Core    int
	Verdict rt.Verdict
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("core %d is refused: %s", e.Core, e.Verdict)
}

// Admit places the servers that name no core, judges every core by the test that its backend needs, and makes
// the table for the fast path. The node is what the fast path reports of itself. Servers without a
// group of their own get one below group. A refusal names the core and the verdict; all are joined.
func Admit(f File, node table.Report, group string) (table.Table, error) {
	if err := prioritised(f, node.Backend); err != nil {
		return table.Table{}, err
	}
	loads, err := loadsOf(f, node)
	if err != nil {
		return table.Table{}, err
	}
	byName, err := place(f, loads)
	if err != nil {
		return table.Table{}, err
	}
	out := table.Table{Generation: 1}
	var refusals []error
	for _, load := range loads {
		if len(load.Servers) == 0 {
			continue
		}
		if v := rt.Holds(load.Core, load.Servers); !v.Admitted {
			refusals = append(refusals, &RefusedError{Core: load.ID, Verdict: v})
		}
		out.Plans = append(out.Plans, planOf(rt.PlanCore(load.Core, load.Servers)))
	}
	for _, s := range f.Servers {
		core := byName[s.Name]
		s.Core = &core
		server := s.table()
		server.Label = s.Name
		server.Cgroup = cmp.Or(s.Cgroup, group+"/"+s.Name)
		out.Servers = append(out.Servers, server)
	}
	return out, errors.Join(append(refusals, out.Validate())...)
}

// prioritised refuses priorities of the file where nobody would have them, for admission would go by them: with backend fifo the fast path gives
// threads theirs.
func prioritised(f File, backend string) error {
	if backend != actuator.FIFO {
		return nil
	}
	var faults []error
	for i, s := range f.Servers {
		if s.Priority != 0 {
			faults = append(faults, fmt.Errorf("servers[%d] %q: priority %d; want none with backend %s, which gives priorities by deadline, the shortest highest",
				i, s.Name, s.Priority, backend))
		}
	}
	return errors.Join(faults...)
}

// loadsOf are the cores with the servers that name them.
func loadsOf(f File, node table.Report) ([]rt.Load, error) {
	policy := rt.PolicyOf(node.Backend)
	if f.Admission == rt.TestT1 {
		policy = rt.EDF // whose test T1 is
	}
	ranks := Priorities(f)
	granularity := node.GranularityUs
	if f.ChargeGranularity != nil && *f.ChargeGranularity > 0 {
		granularity = int64(*f.ChargeGranularity)
	}
	var loads []rt.Load
	var ids []int
	for _, c := range node.Cores {
		ids = append(ids, c.ID)
		loads = append(loads, rt.Load{Core: rt.Core{
			ID: c.ID, Sibling: rt.NoSibling, Capacity: min(rt.PPM(c.CapacityPpm), rt.MaxCapacity), Granularity: granularity, Policy: policy,
		}})
	}
	var faults []error
	for i, s := range f.Servers {
		if s.Core == nil {
			continue
		}
		at := slices.Index(ids, *s.Core)
		if at < 0 {
			faults = append(faults, fmt.Errorf("servers[%d] %q: core %d takes no real-time work; want one of %s", i, s.Name, *s.Core, list(ids)))
			continue
		}
		loads[at].Servers = append(loads[at].Servers, s.theory(ranks))
	}
	return loads, errors.Join(faults...)
}

// place adds the servers that name no core to the loads, the largest first, and says where every one is.
func place(f File, loads []rt.Load) (map[string]int, error) {
	var free []rt.Server
	ranks := Priorities(f)
	for _, s := range f.Servers {
		if s.Core == nil {
			free = append(free, s.theory(ranks))
		}
	}
	slices.SortStableFunc(free, func(a, b rt.Server) int { return cmp.Compare(b.Charge(0), a.Charge(0)) })
	var faults []error
	for _, s := range free {
		core, v, ok := rt.BestCore(loads, s)
		if !ok {
			faults = append(faults, fmt.Errorf("%q fits on no core; the nearest: %w", s.ID, &RefusedError{Core: core, Verdict: v}))
			continue
		}
		i := slices.IndexFunc(loads, func(l rt.Load) bool { return l.ID == core })
		loads[i].Servers = append(loads[i].Servers, s)
	}
	out := map[string]int{}
	for _, l := range loads {
		for _, s := range l.Servers {
			out[s.ID] = l.ID
		}
	}
	return out, errors.Join(faults...)
}

// theory is the server as the theory knows it. The file was validated.
func (s Server) theory(ranks map[string]int) rt.Server {
	if s.Core == nil {
		s.Core = new(int)
	}
	out, _ := s.table().RT() // it was validated when the file was parsed
	out.Priority = ranks[s.Name]
	return out
}

// Priorities are the servers' fixed priorities by name: the file's, else deadline-monotonic (Leung and
// Whitehead 1982).
func Priorities(f File) map[string]int {
	var deadlines []Duration
	for _, s := range f.Servers {
		deadlines = append(deadlines, s.Deadline)
	}
	slices.Sort(deadlines)
	deadlines = slices.Compact(deadlines)
	out := map[string]int{}
	for _, s := range f.Servers {
		at, _ := slices.BinarySearch(deadlines, s.Deadline)
		out[s.Name] = cmp.Or(s.Priority, min(LeastPriority+len(deadlines)-1-at, MaxPriority))
	}
	return out
}

func planOf(p rt.CorePlan) table.Plan {
	out := table.Plan{Core: p.Core, ThresholdPpm: int64(p.Threshold), MaxRaised: p.Windows}
	for _, r := range p.Raise {
		out.Raise = append(out.Raise, table.Raise{ID: r.ID, ToUs: r.ToUs})
	}
	for _, s := range p.Squeeze {
		out.Squeeze = append(out.Squeeze, table.Squeeze{ID: s.ID, FloorUs: s.FloorUs})
	}
	return out
}

func list(ids []int) string { return strings.Trim(fmt.Sprint(ids), "[]") }
