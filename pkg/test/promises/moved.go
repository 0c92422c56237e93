package promises

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

const (
	// recovery is the reason of actions that give back what another took.
	recovery = "Recovery"
	// lastResort ends the cause of a node's replacement that may move again who was moved for the same pressure.
	lastResort = "/node"
)

// moved is a pod that was moved, and why.
type moved struct {
	cause string
	pod   types.UID
}

// move is by which action a pod was moved and, if it stayed on its node, which container of it.
type move struct{ action, container string }

// movedOnce remembers what an action that succeeded has moved, and expects it, its containers and its pod not to have been moved for
// the same before: whether they went to other cores, were evicted, or left with their node. Who left with a node is known by who ran
// there meanwhile, not by what the action says.
func (c *checker) movedOnce(s history.State, action *mckubev1alpha1.RTAction) {
	if action.Spec.Kind == "ReplaceNode" && (action.Status.Phase == "Running" || action.Status.Phase == "RollingBack") {
		c.tenants(s, action)
	}
	if strings.HasSuffix(action.Spec.Cause, lastResort) && action.Spec.Kind != "ReplaceNode" {
		c.tell(s.Revision, "%s of kind %s is for %s, which is for replacing the node", action.Name, action.Spec.Kind, action.Spec.Cause)
	}
	if action.Status.Phase != "Succeeded" || action.Spec.Reason == recovery {
		return
	}
	switch action.Spec.Kind {
	case "Migrate":
		for _, pod := range action.Spec.Pods {
			c.moves(s.Revision, action, pod.UID, "")
		}
	case "Preempt":
		c.evicted(s, action)
	}
	for _, move := range action.Spec.Moves {
		c.moves(s.Revision, action, move.PodUID, move.Container)
	}
	for _, pod := range slices.Sorted(maps.Keys(c.displaced[action.Name])) {
		c.moves(s.Revision, action, pod, "")
	}
}

// evicted remembers which pods of a preemption had gone, or were about to, when it had succeeded: it may have left some where they are.
func (c *checker) evicted(s history.State, action *mckubev1alpha1.RTAction) {
	if c.displaced[action.Name] != nil {
		return
	}
	c.displaced[action.Name] = map[types.UID]bool{}
	for _, named := range action.Spec.Pods {
		pod := s.Pods[types.NamespacedName{Namespace: named.Namespace, Name: named.Name}]
		if pod == nil || pod.UID != named.UID || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			c.displaced[action.Name][named.UID] = true
		}
	}
}

// tenants remembers who has real-time containers on a node while it is being replaced, and was not told to go before.
func (c *checker) tenants(s history.State, action *mckubev1alpha1.RTAction) {
	node, first := s.RTNodes[action.Spec.Node], c.displaced[action.Name] == nil
	if node == nil || !first {
		return
	}
	c.displaced[action.Name] = map[types.UID]bool{}
	for _, server := range node.Spec.Servers {
		pod := s.Pods[types.NamespacedName{Namespace: server.Namespace, Name: server.Pod}]
		if pod != nil && pod.UID == server.PodUID && pod.DeletionTimestamp == nil {
			c.displaced[action.Name][server.PodUID] = true
		}
	}
}

// moves remembers one move.
func (c *checker) moves(revision uint64, action *mckubev1alpha1.RTAction, pod types.UID, container string) {
	key := moved{cause: action.Spec.Cause, pod: pod}
	for _, before := range c.moved[key] {
		switch {
		case before == move{action.Name, container}:
			return
		case before.container != "" && container != "" && before.container != container || before.action == action.Name:
			continue
		}
		c.tell(revision, "%s was moved for %s by %s and by %s", thing(pod, container), key.cause, before.action, action.Name)
	}
	c.moved[key] = append(c.moved[key], move{action.Name, container})
}

func thing(pod types.UID, container string) string {
	if container == "" {
		return "pod " + string(pod)
	}
	return "container " + string(pod) + "/" + container
}
