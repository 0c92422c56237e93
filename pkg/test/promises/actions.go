package promises

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

// The queue's limits when nothing else is said, as docs/orchestration.md has them.
const (
	actionsOfNode    = 5
	podsOfNamespace  = 20
	actionsOfCluster = 50
)

// actions checks what runs at once, and what has been moved.
func (c *checker) actions(s history.State) {
	pods, nodes, alone := map[types.UID]string{}, map[string]int{}, map[string]string{}
	namespaces, all := map[string]int{}, 0
	for _, name := range slices.Sorted(maps.Keys(s.Actions)) {
		action := s.Actions[name]
		c.movedOnce(s, action)
		if action.Status.Phase != "Running" && action.Status.Phase != "RollingBack" {
			continue
		}
		all++
		c.victims(s.Revision, s, action)
		for _, pod := range action.Spec.Pods {
			if other, ok := pods[pod.UID]; ok {
				c.tell(s.Revision, "pod %s is in the hands of %s and of %s", pod.Name, other, name)
			}
			pods[pod.UID] = name
			namespaces[pod.Namespace]++
		}
		if node := action.Spec.Node; node != "" && action.Spec.Kind != "OpenNode" {
			nodes[node]++
			if action.Spec.Kind == "ReplaceNode" && !gone(action) {
				alone[node] = name
			}
		}
	}
	for node, action := range alone {
		if nodes[node] > 1 {
			c.tell(s.Revision, "node %s is not in the hands of %s alone", node, action)
		}
	}
	c.within(s.Revision, "node", nodes, actionsOfNode)
	c.within(s.Revision, "namespace", namespaces, podsOfNamespace)
	c.within(s.Revision, "cluster", map[string]int{"": all}, actionsOfCluster)
}

// gone tells whether the node of an action is being closed by now: then others may take from it what is left.
func gone(action *mckubev1alpha1.RTAction) bool {
	return slices.ContainsFunc(action.Status.Spent, func(k mckubev1alpha1.ActionKey) bool { return k.Resource == "Node" })
}

func (c *checker) within(revision uint64, what string, has map[string]int, limit int) {
	for _, name := range slices.Sorted(maps.Keys(has)) {
		if has[name] > limit {
			c.tell(revision, "%s %s has more under way than %d", what, name, limit)
		}
	}
}

// victims expects those of an action to be less critical than whom it is for.
func (c *checker) victims(revision uint64, s history.State, action *mckubev1alpha1.RTAction) {
	if action.Spec.Kind != "Preempt" {
		return
	}
	mine := 1 + slices.Index([]string{"low", "middle", "high"}, strings.ToLower(action.Spec.Beneficiary.Criticality))
	for _, victim := range action.Spec.Pods {
		pod := s.Pods[types.NamespacedName{Namespace: victim.Namespace, Name: victim.Name}]
		if pod == nil || pod.UID != victim.UID {
			continue
		}
		if theirs := criticality(s, pod); theirs >= mine {
			c.tell(revision, "%s evicts pod %s of rank %d for rank %d", action.Name, pod.Name, theirs, mine)
		}
	}
}
