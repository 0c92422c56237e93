package disruption_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// A pod that was pending while the replacement started may have come there first. It may have taken what else the pods of the
// node ask for.
func TestANodeIsNotClosedWhileItsPodsHaveNoRoomElsewhere(t *testing.T) {
	for name, needs := range map[string]func(*corev1.PodSpec){
		"CPU": func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3950m")}
		},
		"a host to itself": func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				LabelSelector: &metav1.LabelSelector{}, TopologyKey: corev1.LabelHostname,
			}}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, _ := ready(t, nil)
			first := statetest.Pod("default", "first", "", "app")
			first.CreationTimestamp = metav1.Time{}
			first.Spec.NodeName, first.Spec.Containers[0].Image, first.Status.Phase = w.opened()[0], "app", corev1.PodRunning
			needs(&first.Spec)
			w.create(first)
			w.sync()
			w.carry("old")
			if w.closing("old") {
				t.Fatal("the node is being closed, and its pod can go nowhere")
			}
			result := w.step("replace-1")
			w.expectMessage(result, "no other node has a core that admits container app of pod default/control, and what else its pod asks for")
			if result.Undo {
				t.Error("it is given up, and the room may come back")
			}
			w.must(w.client.Delete(w.ctx, first, client.GracePeriodSeconds(0)))
			w.must(w.store.Delete(first))
			w.cluster.DeletePod(client.ObjectKeyFromObject(first))
			w.clock.Step(2 * time.Second)
			w.carry("old")
			if !w.closing("old") {
				t.Errorf("there is room, and the node is not closed: %+v", w.step("replace-1"))
			}
		})
	}
}

// consolidated is a node that consolidation closes. Its pod was to have the core of the node that stays; a new pod has that
// core since.
func consolidated(t *testing.T) (w *world, node, stays string, newPod *corev1.Pod) {
	t.Helper()
	w = consolidating(t)
	for _, name := range []string{"a", "b"} {
		w.node(name, "edge", statetest.Cores(1)...)
		w.pod("pod-"+name, name, 40)
	}
	w.pass()
	closed := w.disrupted()
	if len(closed) != 1 {
		t.Fatalf("consolidation closes %v, want one of two half empty nodes", closed)
	}
	stays = map[string]string{"a": "b", "b": "a"}[closed[0]]
	return w, closed[0], stays, w.pod("newcomer", stays, 40)
}

// leaves has a pod with so much of a core go, and more than a second pass.
func (w *world) leaves(pod *corev1.Pod, node string, percent int64) {
	w.Helper()
	w.must(w.client.Delete(w.ctx, pod, client.GracePeriodSeconds(0)))
	w.must(w.store.Delete(pod))
	w.must(w.store.Delete(heldFor(pod, node, percent)))
	w.cluster.DeletePod(client.ObjectKeyFromObject(pod))
	w.clock.Step(2 * time.Second)
}

// Nor is a node closed by a standard method whose pods were to have cores that others have taken since. No action tells of it.
func TestConsolidationEndsWhereTheRoomIsGone(t *testing.T) {
	w, node, stays, newPod := consolidated(t)
	w.carry(node)
	if w.closing(node) {
		t.Fatal("the node is being closed, and the core that its pod was to have is taken")
	}
	if want := "NoCoreElsewhere: no other node has a core that admits container app of pod default/pod-" + node; !w.said(want) {
		t.Errorf("it is not told: %q", w.messages())
	}
	w.expectHeld(map[string]float64{"NoCoreElsewhere": 1})
	w.leaves(newPod, stays, 40)
	w.carry(node)
	if !w.closing(node) {
		t.Error("there is room again, and the node is not closed")
	}
	w.expectHeld(nil)
}
