package promises

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

// evicted is the reason of condition DisruptionTarget that the Eviction API leaves on a pod.
const evicted = "EvictionByEvictionAPI"

// plan is what is needed of annotation mckube.io/preempting.
type plan struct {
	Victims []types.UID `json:"victims"`
}

// preemptions checks the plans that pending pods carry, and how the pods that they name go.
func (c *checker) preemptions(s history.State) {
	var planned []types.NamespacedName
	for name, pod := range s.Pods {
		if pod.Annotations[mcoperatorv1.AnnotationPreempting] != "" {
			planned = append(planned, name)
		}
	}
	slices.SortFunc(planned, byName)
	for _, name := range planned {
		pod := s.Pods[name]
		text := pod.Annotations[mcoperatorv1.AnnotationPreempting]
		var p plan
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			c.tell(s.Revision, "the plan on pod %s cannot be read: %v", name, err)
			continue
		}
		for _, victim := range s.Pods {
			if slices.Contains(p.Victims, victim.UID) {
				c.victim(s, pod, victim)
			}
		}
	}
}

func byName(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }

func (c *checker) victim(s history.State, beneficiary, victim *corev1.Pod) {
	mine, theirs := criticality(s, beneficiary), criticality(s, victim)
	if theirs >= mine {
		c.tell(s.Revision, "pod %s of rank %d is to give way to %s of rank %d", victim.Name, theirs, beneficiary.Name, mine)
	}
	if !victim.DeletionTimestamp.IsZero() && !goesByEviction(victim) {
		c.tell(s.Revision, "pod %s, which gives way to %s, goes without the Eviction API", victim.Name, beneficiary.Name)
	}
}

func goesByEviction(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == evicted
	})
}

// criticality is the highest rank that a McKube gives the pod: 1 Low, 2 Middle, 3 High; 0 without any.
func criticality(s history.State, pod *corev1.Pod) int {
	rank := 0
	for _, m := range s.McKubes {
		if governs(m, pod) {
			rank = max(rank, 1+slices.Index([]string{"low", "middle", "high"}, strings.ToLower(string(m.Spec.Criticality))))
		}
	}
	return rank
}

func governs(m *mcoperatorv1.McKube, pod *corev1.Pod) bool {
	if m.Namespace != pod.Namespace {
		return false
	}
	if m.Spec.Selector == nil {
		return m.Spec.Podname == pod.Name
	}
	selector, err := metav1.LabelSelectorAsSelector(m.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(pod.Labels))
}
