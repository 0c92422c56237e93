package chart

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
)

// AgentDaemonSet is the chart's only one: the node agent's.
func AgentDaemonSet(m Manifests) (*appsv1.DaemonSet, error) {
	all := m.OfKind("DaemonSet")
	if len(all) != 1 {
		return nil, fmt.Errorf("the chart renders %d DaemonSets, not one", len(all))
	}
	return Decode[appsv1.DaemonSet](all, "DaemonSet", all[0].GetName())
}

// NodeInvocation reads how a container of a DaemonSet is run. What it mounts and what only a kubelet knows is the
// caller's: the paths in its arguments, and its environment.
func NodeInvocation(set *appsv1.DaemonSet, container string) (Invocation, error) {
	for _, c := range set.Spec.Template.Spec.Containers {
		if c.Name == container {
			return Invocation{Args: c.Args, Namespace: set.Namespace, ServiceAccount: set.Spec.Template.Spec.ServiceAccountName}, nil
		}
	}
	return Invocation{}, fmt.Errorf("DaemonSet %s has no container %q", set.Name, container)
}
