package v1alpha1

import (
	"slices"
	"time"
)

// CountsEvery is the least time between two reports of a node that differ in nothing but counts. There may be thousands
// of nodes, and the API server sends each report to every watcher.
const CountsEvery = 2 * time.Second

// Uncounted is the status without what only counts: overruns, misses, drift and when a container overran last.
func (s RTNodeStatus) Uncounted() RTNodeStatus {
	s.Servers = slices.Clone(s.Servers)
	for i := range s.Servers {
		s.Servers[i].Overruns, s.Servers[i].Misses, s.Servers[i].Drift, s.Servers[i].LastOverrunTime = 0, 0, 0, nil
	}
	return s
}
