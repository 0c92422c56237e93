package placement

import (
	corev1 "k8s.io/api/core/v1"
)

// Room is what a node has for pods, and what of it is left beside the requests of those that are on it.
type Room struct{ Allocatable, Available corev1.ResourceList }

// Rooms are those of all nodes that stay, by their names.
func (s *Simulator) Rooms() map[string]Room {
	out := map[string]Room{}
	for n := range s.Cluster.Nodes() {
		if n.Node != nil && !n.MarkedForDeletion() {
			out[n.Node.Name] = Room{n.Allocatable(), n.Available()}
		}
	}
	return out
}
