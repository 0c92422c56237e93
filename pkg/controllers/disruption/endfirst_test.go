package disruption_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	karptest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// full is a world with an inventory of one machine, which node "old" has, and another node of so many cores. On "old" are real-time pod
// "control", half a core of which is its own, and pod "web", for which there is room on no other node.
func full(t *testing.T, endFirst bool, cores ...rt.Core) *world {
	t.Helper()
	w := begin(t, statetest.Cores(2)...)
	w.ctx = options.ToContext(w.ctx, karptest.Options(karptest.OptionsFields{FeatureGates: karptest.FeatureGates{
		ReservedCapacity: ptr.To(true), TerminateFirstRepair: &endFirst,
	}}))
	slot := map[string]string{karpv1.CapacityTypeLabelKey: karpv1.CapacityTypeReserved, karpcloud.ReservationIDLabel: "slot-1", corev1.LabelTopologyZone: "test-zone-1"}
	w.cloud.InstanceTypes = w.cloud.InstanceTypes[1:]
	w.cloud.InstanceTypes[0].Offerings = karpcloud.Offerings{{Available: true, Price: 0.2, Requirements: labels(slot)}}
	w.restart()
	node := w.node("old", "edge", statetest.Cores(2)...)
	claim := &karpv1.NodeClaim{}
	w.must(w.client.Get(w.ctx, types.NamespacedName{Name: "old"}, claim))
	for key, value := range slot {
		claim.Labels[key], node.Labels[key] = value, value
	}
	w.must(w.client.Update(w.ctx, claim))
	w.must(w.client.Update(w.ctx, node))
	w.node("other", "edge", cores...)
	w.asks("filling", "other", "3")
	w.asks("web", "old", "3")
	w.pod("control", "old", 50)
	w.submit("replace-1", "old")
	w.step("replace-1")
	return w
}

// asks has an ordinary pod with a CPU request run on a node.
func (w *world) asks(name, node, cpu string) {
	w.Helper()
	pod := statetest.Pod("default", name, "", "app")
	pod.CreationTimestamp = metav1.Time{}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web-1", Controller: ptr.To(true)}}
	pod.Spec.NodeName, pod.Spec.Containers[0].Image = node, "app"
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	pod.Status.Phase = corev1.PodRunning
	w.create(pod)
	w.sync()
}

// Where every machine is in use, a node is ended before it is opened anew, if the gate is open for that and only ordinary pods wait meanwhile.
func TestANodeOfAFullInventoryIsEndedFirst(t *testing.T) {
	w := full(t, true, statetest.Cores(2)...)
	w.pass()
	if got := w.disrupted(); !slices.Equal(got, []string{"old"}) || len(w.opened()) > 0 {
		t.Fatalf("Karpenter closes %v and opens %v: %+v", got, w.opened(), w.step("replace-1"))
	}
	w.carry("old")
	if !w.closing("old") {
		t.Fatalf("the node is not deleted: %+v", w.step("replace-1"))
	}
	pod := &corev1.Pod{}
	w.must(w.client.Get(w.ctx, types.NamespacedName{Namespace: "default", Name: "control"}, pod))
	w.evict(pod)
	if result := w.step("replace-1"); result.Outcome != rules.Succeeded {
		t.Errorf("it came to %+v", result)
	}
}

func TestANodeOfAFullInventoryIsNotEndedFirst(t *testing.T) {
	for name, c := range map[string]struct {
		open bool
		// change of the world, in which else the node would be ended first.
		change func(*world)
		want   string
	}{
		"the gate is closed": {false, func(*world) {}, "its pods find no place"},
		"the real-time pod would wait, too, for what else it asks for": {
			true, func(w *world) { w.asks("more", "other", "950m") }, "no machine is free, and real-time pod default/control has room on no other node",
		},
		"the real-time pod would have no core meanwhile": {
			true, func(w *world) { w.pod("neighbour", "other", 60) }, "no other node has a core that admits container app of pod default/control",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := full(t, c.open, statetest.Cores(1)...)
			c.change(w)
			w.pass()
			if got := w.disrupted(); len(got) != 0 {
				t.Fatalf("Karpenter closes %v", got)
			}
			result := w.step("replace-1")
			w.expectMessage(result, c.want)
			if !result.Undo {
				t.Errorf("it waits: %+v", result)
			}
		})
	}
}
