package rtruntime

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/metrics"
)

// refusedContainers are the containers that have been refused a core and wait, with the test that decided, by McKube and ID of the server.
type refusedContainers struct {
	mu      sync.Mutex
	waiting map[types.NamespacedName]map[string]string
}

func newRefusedContainers() *refusedContainers {
	return &refusedContainers{waiting: map[types.NamespacedName]map[string]string{}}
}

// record replaces the containers of a McKube that wait; none forgets it. The gauge has all of them. The counter has those whose pods are on no
// node, each once per test that refuses it: the loop over nodes counts the others.
func (r *refusedContainers) record(key types.NamespacedName, now map[string]string, unbound func(id string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.waiting[key]
	for _, test := range before {
		metrics.ContainersRefused.WithLabelValues(test).Dec()
	}
	for id, test := range now {
		metrics.ContainersRefused.WithLabelValues(test).Inc()
		if before[id] != test && unbound(id) {
			metrics.Admissions.WithLabelValues(metrics.VerdictRefused, test).Inc()
		}
	}
	if r.waiting[key] = now; len(now) == 0 {
		delete(r.waiting, key)
	}
}

// recordRefusals notes which containers of a McKube have been refused a core.
func (c *mckubes) recordRefusals(key types.NamespacedName, g *governance) {
	now, unbound := map[string]string{}, map[string]bool{}
	for i, v := range g.verdicts() {
		if v.admitted() || !refusal(v.blocking.Reason) {
			continue
		}
		test := metrics.TestNone
		for _, n := range v.blocking.Numbers {
			if n.Test != "" && !n.OK {
				test = n.Test
			}
		}
		id := g.parts[i].Server.ID
		now[id], unbound[id] = test, g.parts[i].pod.NodeName == ""
	}
	c.refused.record(key, now, func(id string) bool { return unbound[id] })
}
