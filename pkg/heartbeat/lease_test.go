package heartbeat_test

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mainspring-rt/mainspring/pkg/heartbeat"
)

func TestALeaseTellsOfItsRTNode(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_000_000, 5000)
	l := heartbeat.Lease("edge-1", "uid-1", at)
	rtNode, uid, renewed, ok := heartbeat.Of(l)
	if !ok || rtNode.Name != "edge-1" || rtNode.Namespace != "" || uid != "uid-1" || !renewed.Time.Equal(at) {
		t.Errorf("got %v %s %v %v", rtNode, uid, renewed, ok)
	}
	if !heartbeat.Selector().Matches(labels.Set(l.Labels)) || heartbeat.Selector().Matches(labels.Set{}) {
		t.Errorf("%s selects %v, or everything", heartbeat.Selector(), l.Labels)
	}
	if l.Namespace != corev1.NamespaceNodeLease || *l.Spec.HolderIdentity != "edge-1" {
		t.Errorf("the Lease is %+v", l)
	}
}

// Leases of kubelets are in the same namespace, and a node may be called as an agent's Lease is.
func TestOtherLeasesTellNothing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*coordinationv1.Lease){
		"a kubelet's": func(l *coordinationv1.Lease) { l.Name, l.OwnerReferences[0].Kind = "edge-1", "Node" },
		"the kubelet's of rtnode-x": func(l *coordinationv1.Lease) {
			l.OwnerReferences[0].Kind, l.OwnerReferences[0].APIVersion = "Node", "v1"
		},
		"of another namespace":     func(l *coordinationv1.Lease) { l.Namespace = "default" },
		"of another node's RTNode": func(l *coordinationv1.Lease) { l.OwnerReferences[0].Name = "edge-2" },
		"of another API's RTNode":  func(l *coordinationv1.Lease) { l.OwnerReferences[0].APIVersion = "example.com/v1" },
		"of nobody":                func(l *coordinationv1.Lease) { l.OwnerReferences = nil },
		"never renewed":            func(l *coordinationv1.Lease) { l.Spec.RenewTime = nil },
	} {
		l := heartbeat.Lease("edge-1", "uid-1", time.Unix(1, 0))
		change(l)
		if rtNode, uid, _, ok := heartbeat.Of(l); ok {
			t.Errorf("%s: tells of %v %s", name, rtNode, uid)
		}
	}
}
