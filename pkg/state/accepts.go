package state

import (
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// Accepts tells whether a pod may run on a node, cores apart: what the scheduler asks of node selector,
// required affinity, taints and cordon, and the node that a McKube names. The reason is in words.
func (s *Snapshot) Accepts(n *NodeView, pod *PodView) (ok bool, reason string) {
	if why := n.Shut(); why != "" {
		return false, why
	}
	for _, g := range pod.Governed {
		if wanted := mustRunOn(g.McKube); wanted != "" && wanted != n.Name {
			return false, fmt.Sprintf("McKube %s names node %s", g.McKube.Name, wanted)
		}
	}
	return pod.tolerates(n)
}

// Shut is why the node accepts no pods now, whatever the pod, in words; empty: it accepts pods.
func (n *NodeView) Shut() string {
	switch {
	case n.UID == "":
		return "the node is gone"
	case n.Deleting:
		return "the node is being deleted"
	case !n.Schedulable:
		return "the node is cordoned"
	case !n.Ready:
		return "the node is not ready"
	case n.Agent == AgentSilent:
		return "the node's agent is silent"
	}
	return ""
}

// mustRunOn is the node that the McKube's author named; empty when any will do. A node that the controller filled in binds no
// pod.
func mustRunOn(m *mcv1.McKube) string {
	if m.Annotations[mcv1.AnnotationFilledNode] == m.Spec.Node {
		return ""
	}
	return m.Spec.Node
}

// Tolerates tells whether the pod may run where the taint is.
func (p *PodView) Tolerates(taint corev1.Taint) bool {
	return p.placement != nil && slices.ContainsFunc(p.placement.tolerations, func(t corev1.Toleration) bool {
		return t.ToleratesTaint(logr.Discard(), &taint, false)
	})
}

func (p *PodView) tolerates(n *NodeView) (ok bool, reason string) {
	wants := placement{}
	if p.placement != nil {
		wants = *p.placement
	}
	matched, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: corev1.PodSpec{
		NodeSelector: wants.nodeSelector, Affinity: &corev1.Affinity{NodeAffinity: wants.affinity},
	}}).Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.labels}})
	if err != nil || !matched {
		return false, "the pod's node selector or affinity rules it out"
	}
	taint, untolerated := schedulingcorev1.FindMatchingUntoleratedTaint(logr.Discard(), n.taints, wants.tolerations, func(t *corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule
	}, false)
	if untolerated {
		return false, fmt.Sprintf("taint %s is not tolerated", taint.ToString())
	}
	return true, ""
}
