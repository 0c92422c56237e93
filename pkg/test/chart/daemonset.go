package chart

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
)

// Names of the containers that the chart's DaemonSet runs.
const (
	agentContainer    = "agent"
	fastPathContainer = "fastpath"
)

// AgentInvocation reads from the chart's DaemonSet how the agent is run. What it mounts and what only a
// kubelet knows is the caller's: the paths in its arguments, and its environment.
func AgentInvocation(m Manifests) (Invocation, error) { return nodeInvocation(m, agentContainer) }

// FastPathInvocation is AgentInvocation for the fast path beside it.
func FastPathInvocation(m Manifests) (Invocation, error) { return nodeInvocation(m, fastPathContainer) }

func nodeInvocation(m Manifests, container string) (Invocation, error) {
	all := m.OfKind("DaemonSet")
	if len(all) != 1 {
		return Invocation{}, fmt.Errorf("the chart renders %d DaemonSets, not one", len(all))
	}
	set, err := Decode[appsv1.DaemonSet](all, "DaemonSet", all[0].GetName())
	if err != nil {
		return Invocation{}, err
	}
	for _, c := range set.Spec.Template.Spec.Containers {
		if c.Name == container {
			return Invocation{Args: c.Args, Namespace: set.Namespace, ServiceAccount: set.Spec.Template.Spec.ServiceAccountName}, nil
		}
	}
	return Invocation{}, fmt.Errorf("DaemonSet %s has no container %q", set.Name, container)
}
