package promises

import (
	"maps"
	"slices"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

const (
	million = 1_000_000
	low     = "Low"
)

// servers checks what one version of an RTNode asks for.
func (c *checker) servers(s history.State, n *mckubev1alpha1.RTNode) {
	load := map[int32][]mckubev1alpha1.RTServer{}
	for _, srv := range n.Spec.Servers {
		if len(srv.Cores) != 1 {
			c.tell(s.Revision, "%s/%s is on cores %v of node %s, not on one", srv.Pod, srv.Container, srv.Cores, n.Name)
			continue
		}
		load[srv.Cores[0]] = append(load[srv.Cores[0]], srv)
		c.bound(s, n, srv)
	}
	for _, id := range slices.Sorted(maps.Keys(load)) {
		offered, known := c.cores[n.Name][id]
		if !known {
			c.tell(s.Revision, "node %s has no core %d, on which it is to run %s", n.Name, id, load[id][0].Pod)
			continue
		}
		need, step := demand(load[id])
		if need > offered.capacity || step > offered.reserve {
			c.tell(s.Revision, "core %d of node %s is promised %d ppm of %d, and steps of %d ppm of %d reserved: %v",
				id, n.Name, need, offered.capacity, step, offered.reserve, names(load[id]))
		}
	}
}

// bound expects the server's pod, while it is there, to run on the node.
func (c *checker) bound(s history.State, n *mckubev1alpha1.RTNode, srv mckubev1alpha1.RTServer) {
	if node, here := c.pods[srv.PodUID]; here && node != n.Name {
		c.tell(s.Revision, "pod %s/%s is on node %q, and a server of node %s", srv.Namespace, srv.Pod, node, n.Name)
	}
}

// demand is what the servers of a core are charged together by test T1 (sum of the budgets that each
// may come to have, Vestal's C(HI) for those that may escalate), in parts per million; and the largest
// step up among those admitted by T1k, which one of them at a time may take out of the reserve.
func demand(servers []mckubev1alpha1.RTServer) (need, step int64) {
	for _, s := range servers {
		budget := s.BudgetLowUs
		escalates := s.Criticality != low && s.BudgetHighUs > s.BudgetLowUs
		switch {
		case escalates && s.Limited:
			step = max(step, perMillion(s.BudgetHighUs-s.BudgetLowUs, s.PeriodUs))
		case escalates:
			budget = s.BudgetHighUs
		}
		need += perMillion(budget+Granularity, s.PeriodUs)
	}
	return need, step
}

// perMillion rounds up: a promise is never understated.
func perMillion(budget, period int64) int64 { return (budget*million + period - 1) / period }

func names(servers []mckubev1alpha1.RTServer) []string {
	list := make([]string, len(servers))
	for i, s := range servers {
		list[i] = s.Pod + "/" + s.Container
	}
	return list
}

// budgets checks what one version of an RTNode says is in force.
func (c *checker) budgets(revision uint64, n *mckubev1alpha1.RTNode) {
	inForce := map[int32]int64{}
	for _, s := range n.Status.Servers {
		for _, id := range s.Cores {
			if s.PeriodUs > 0 {
				inForce[id] += perMillion(s.BudgetUs, s.PeriodUs)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(inForce)) {
		if offered, known := c.cores[n.Name][id]; known && inForce[id] > offered.capacity+offered.reserve {
			c.tell(revision, "budgets in force on core %d of node %s add up to %d ppm of %d", id, n.Name, inForce[id], offered.capacity+offered.reserve)
		}
	}
}
