package agent

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mainspring-rt/mainspring/pkg/agent/discover"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// Build makes the fast path's table of an RTNode's spec. Servers and plans that are at fault are left out, so
// that they keep nobody else back; faults says what is wrong with each, by ID, and of a plan also at the
// servers of its core. Containers that do not run yet are in the table without a group. It depends on nothing
// but its arguments.
func Build(r *v1alpha1.RTNode, found map[discover.Key]discover.Found) (t table.Table, faults map[string]string) {
	faults = map[string]string{}
	if r == nil {
		return table.Table{}, faults
	}
	t.Generation, t.Origin = r.Generation, string(r.UID)
	groups := map[string]string{}
	for _, spec := range r.Spec.Servers {
		s, err := serverOf(spec, found)
		if other := groups[s.Cgroup]; err == nil && s.Cgroup != "" && other != "" {
			err = fmt.Errorf("its group %s is also that of server %s", s.Cgroup, other)
		}
		if err != nil {
			faults[s.ID] = err.Error()
			continue
		}
		groups[s.Cgroup] = s.ID
		t.Servers = append(t.Servers, s)
	}
	addPlans(&t, r.Spec.Plan, faults)
	return t.Sorted(), faults
}

// addPlans adds those that the fast path takes.
func addPlans(t *table.Table, plans []v1alpha1.RTCorePlan, faults map[string]string) {
	for _, spec := range plans {
		plan := planOf(spec)
		err := table.Table{Plans: []table.Plan{plan}}.Validate()
		if err == nil {
			t.Plans = append(t.Plans, plan)
			continue
		}
		faults[planID(plan.Core)] = err.Error()
		for _, s := range t.Servers {
			if s.Core == plan.Core {
				faults[s.ID] = "the plan of its core: " + err.Error()
			}
		}
	}
}

// planID names a core's plan among faults.
func planID(core int) string { return fmt.Sprintf("plan of core %d", core) }

// serverOf is the server of an entry of a spec. Its ID is set with an error, too.
func serverOf(spec v1alpha1.RTServer, found map[discover.Key]discover.Found) (table.Server, error) {
	overruns, periods := spec.Trigger()
	s := table.Server{
		ID: idOf(spec), Label: spec.Namespace + "/" + spec.Pod + "/" + spec.Container, Criticality: spec.Criticality,
		PeriodUs: spec.PeriodUs, DeadlineUs: cmp.Or(spec.DeadlineUs, spec.PeriodUs),
		LowUs: spec.BudgetLowUs, HighUs: spec.BudgetHighUs, LeastUs: spec.Budget(spec.Level),
		Mode: cmp.Or(spec.Mode, table.Elastic), Limited: spec.Limited,
		Overruns: int(overruns), Periods: int(periods), DwellUs: spec.Dwell(),
	}
	for _, l := range spec.Levels {
		s.LevelsUs = append(s.LevelsUs, l.BudgetUs)
	}
	slices.Sort(s.LevelsUs)
	c, here := found[discover.Key{Pod: spec.PodUID, Container: spec.Container}]
	switch {
	case !here:
		return s, fmt.Errorf("pod %s/%s has no container %q on this node", spec.Namespace, spec.Pod, spec.Container)
	case c.Err != nil:
		return s, fmt.Errorf("looking for its group: %w", c.Err)
	case len(spec.Cores) != 1:
		return s, fmt.Errorf("cores has %d entries; want one core", len(spec.Cores))
	}
	s.Core, s.Cgroup, s.ContainerID = int(spec.Cores[0]), c.Cgroup, c.ID
	return s, s.Validate()
}

func planOf(p v1alpha1.RTCorePlan) table.Plan {
	out := table.Plan{Core: int(p.Core), ThresholdPpm: p.ThresholdPpm, MaxRaised: int(p.MaxRaised)}
	for _, r := range p.Raise {
		out.Raise = append(out.Raise, table.Raise{ID: rtdra.ServerID(r.PodUID, r.Container), ToUs: r.ToUs})
	}
	for _, s := range p.Squeeze {
		out.Squeeze = append(out.Squeeze, table.Squeeze{ID: rtdra.ServerID(s.PodUID, s.Container), FloorUs: s.FloorUs})
	}
	return out
}

// idOf names a server in tables and reports.
func idOf(s v1alpha1.RTServer) string {
	return serverID(discover.Key{Pod: s.PodUID, Container: s.Container})
}

func serverID(key discover.Key) string { return rtdra.ServerID(key.Pod, key.Container) }
