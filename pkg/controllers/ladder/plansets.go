package ladder

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// sets lists the sets of pods whose departure may help, of the pods that may leave. Each pod that shares a core with an affected
// container is a set. If the container lacks room, the cheapest pods in its way on each core are a set. If budgets block that
// set, the cheapest pods that the budgets allow are another one. No pod in a set is more critical than the affected containers,
// and none has an affected container.
func (p *planner) sets(may func(types.UID) bool, kept func(...types.UID) string) [][]types.UID {
	cores, top := p.contendedCores(), p.contention.affected[0].Criticality
	var out [][]types.UID
	for _, uid := range sortedPods(p.pods) {
		near := slices.ContainsFunc(p.pods[uid], func(s *state.ServerView) bool { return cores[s.Physical] })
		if near && !p.podAffected(uid) && criticalityOf(p.pods[uid]) <= top && may(uid) {
			out = append(out, []types.UID{uid})
		}
	}
	for _, s := range p.contention.affected {
		if p.contention.passes(p.before, s) {
			continue
		}
		for id, core := range p.contention.cores {
			if at := p.before.on(s.ID); at != rt.NoCore && at != id {
				continue
			}
			all := p.least(core, p.before[id], s.Wanted, may, nil)
			sets := [][]types.UID{all}
			if kept(all...) != "" {
				sets = append(sets, p.least(core, p.before[id], s.Wanted, may, kept))
			}
			out = append(out, slices.DeleteFunc(sets, func(set []types.UID) bool { return len(set) < 2 })...)
		}
	}
	return out
}

// ranked gives each server the criticality of its pod, because the whole pod would go. Servers of pods that must not go have the
// highest.
func (p *planner) ranked(l rt.Load, may func(types.UID) bool) rt.Load {
	l.Servers = slices.Clone(l.Servers)
	for i := range l.Servers {
		l.Servers[i].Criticality = rt.High
		if v, ok := p.Node.Server(l.Servers[i].ID); ok && v.McKube != nil && v.Running && may(v.PodUID) {
			l.Servers[i].Criticality = criticalityOf(p.pods[v.PodUID])
		}
	}
	return l
}

// least returns the less critical pods on a core whose departure costs least and leaves room for a server. It considers the pods
// that may go and, unless kept is nil, that budgets let go together. It returns none if no set is enough.
func (p *planner) least(core rt.Core, servers []rt.Server, wanted rt.Server, may func(types.UID) bool, kept func(...types.UID) string) []types.UID {
	if kept == nil {
		kept = func(...types.UID) string { return "" }
	}
	alone := func(uid types.UID) bool { return may(uid) && kept(uid) == "" }
	candidates, of := map[types.UID]rt.Candidate{}, map[string]types.UID{}
	for _, o := range p.ranked(rt.Load{Core: core, Servers: servers}, alone).Servers {
		v, ok := p.Node.Server(o.ID)
		if !ok || o.Criticality >= wanted.Criticality || o.ID == wanted.ID {
			continue
		}
		c := candidates[v.PodUID]
		c.ID, c.Loss, c.Size = string(v.PodUID), int64(priceOf(p.Node, p.pods[v.PodUID])), c.Size+o.Charge(core.Granularity)
		candidates[v.PodUID], of[o.ID] = c, v.PodUID
	}
	together := func(gone []rt.Candidate) bool { return kept(uidsOf(gone)...) == "" }
	gone, _ := rt.LeastLossAmong(slices.Collect(maps.Values(candidates)), together, func(gone []rt.Candidate) bool {
		rest := slices.DeleteFunc(slices.Clone(servers), func(o rt.Server) bool {
			uid, may := of[o.ID]
			return may && slices.Contains(gone, candidates[uid])
		})
		return rt.Admit(core, rest, wanted).Admitted
	})
	return slices.Sorted(slices.Values(uidsOf(gone)))
}

// uidsOf are the pods that candidates stand for.
func uidsOf(candidates []rt.Candidate) []types.UID {
	out := make([]types.UID, 0, len(candidates))
	for _, c := range candidates {
		out = append(out, types.UID(c.ID))
	}
	return out
}
