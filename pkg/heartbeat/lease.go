// Package heartbeat is how node agents show that they live: each renews a Lease, as kubelets do for their Nodes (KEP-589). RTNode.status, which is
// a hundred times as large and wakes all who look at the node, is then written only for what it says.
package heartbeat

import (
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

const (
	// Namespace of the Leases: that of the kubelets' own.
	Namespace = corev1.NamespaceNodeLease
	// Refresh is how often an agent that renews its Lease writes RTNode.status all the same, for what is too slight to be written for alone.
	Refresh = time.Minute

	// label is on these Leases, and on no kubelet's, so that nobody need watch those of all nodes.
	label = "mckube.io/heartbeat"

	// prefix sets the Leases of agents apart from those of kubelets, which have the names of their nodes.
	prefix = "rtnode-"
)

// Selector selects the Leases of agents.
func Selector() labels.Selector { return labels.SelectorFromSet(marks()) }

func marks() labels.Set { return labels.Set{label: "agent"} }

// Name of the Lease of a node's agent.
func Name(node string) string { return prefix + node }

// Lease is what an agent writes to show that it lives at a time and that what RTNode.status says is true still. It goes with the RTNode.
func Lease(node string, rtNode types.UID, at time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: Name(node), Labels: marks(), OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "RTNode", Name: node, UID: rtNode,
		}}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &node, RenewTime: ptr.To(metav1.NewMicroTime(at))},
	}
}

// Of is the RTNode of whose agent a Lease tells, and when it was renewed; ok is false for every other Lease.
func Of(l *coordinationv1.Lease) (rtNode types.NamespacedName, uid types.UID, renewed metav1.MicroTime, ok bool) {
	node, ours := strings.CutPrefix(l.Name, prefix)
	if !ours || l.Namespace != Namespace || l.Spec.RenewTime == nil {
		return types.NamespacedName{}, "", metav1.MicroTime{}, false
	}
	for _, o := range l.OwnerReferences {
		if o.Kind == "RTNode" && o.APIVersion == v1alpha1.SchemeGroupVersion.String() && o.Name == node {
			return types.NamespacedName{Name: node}, o.UID, *l.Spec.RenewTime, true
		}
	}
	return types.NamespacedName{}, "", metav1.MicroTime{}, false
}
