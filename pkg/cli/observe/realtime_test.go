package observe_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/cli/observe"
	"github.com/mainspring-rt/mainspring/pkg/events"
)

// put creates an object of a resource.
func (a *api) put(t *testing.T, resource schema.GroupVersionResource, kind string, object runtime.Object) {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetAPIVersion(resource.GroupVersion().String())
	u.SetKind(kind)
	if _, err := a.untyped.Resource(resource).Namespace(u.GetNamespace()).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestRecorderJoinsWhatAgentsReportWithWhoWasAskedFor(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.createClaim(t, "edge-1") // until its Node joins, it bears the name of the claim
	a.put(t, observe.RTNodes, "RTNode", &v1alpha1.RTNode{
		ObjectMeta: metav1.ObjectMeta{Name: "edge-1"},
		Spec: v1alpha1.RTNodeSpec{Servers: []v1alpha1.RTServer{
			{PodUID: "1", Container: "app", Namespace: "ns", Pod: "logger", Criticality: "Low"},
			{PodUID: "2", Container: "app", Namespace: "ns", Pod: "brake", Criticality: "High"},
		}},
		Status: v1alpha1.RTNodeStatus{
			Cores: []v1alpha1.RTCoreStatus{{ID: 1, CapacityPpm: 900_000, ReservedPpm: 520_000}, {ID: 2, CapacityPpm: 900_000}},
			Servers: []v1alpha1.RTServerStatus{
				{PodUID: "1", Container: "app", BudgetUs: 2_500, PeriodUs: 10_000, Cores: []int32{1}, Level: "low"},
				{PodUID: "2", Container: "app", BudgetUs: 2_500, PeriodUs: 10_000, Cores: []int32{1}, Level: "hi", Overruns: 3},
			},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionRTPressure, Status: metav1.ConditionTrue, Reason: "DeadlineMisses"}},
		},
	})
	a.put(t, observe.McKubes, "McKube", &mcv1.McKube{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}, Spec: mcv1.McKubeSpec{Podname: "brake"},
		Status: mcv1.McKubeStatus{Conditions: []metav1.Condition{{Type: mcv1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Configured"}}},
	})
	a.until(t, func(s observe.State) bool {
		return len(s.Nodes) == 1 && len(s.Nodes[0].Cores) == 2 && len(s.McKubes) == 1
	})
	state := a.recorder.State()
	node, core, server, ok := state.Server("brake")
	if !ok || node.Claim != "edge-1" || !node.Pressure || core.ID != 1 || core.Promised != 0.52 || server.Level != "hi" || server.Share() != 0.25 || server.Overruns != 3 {
		t.Errorf("%+v on %+v of %+v", server, core, node)
	}
	if first := core.Servers[0]; first.Pod != "brake" {
		t.Errorf("the most critical is not first: %+v", core.Servers)
	}
	if _, _, _, ok := state.Server("nobody"); ok {
		t.Error("a pod that is not there has a core")
	}
	if m := state.McKubes[0]; !m.Ready || m.Reason != "Configured" || m.Pod != "brake" {
		t.Errorf("%+v", m)
	}
	for resource, namespace := range map[schema.GroupVersionResource]string{observe.RTNodes: "", observe.McKubes: "ns"} {
		name := map[string]string{"": "edge-1", "ns": "m"}[namespace]
		if err := a.untyped.Resource(resource).Namespace(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	a.until(t, func(s observe.State) bool { return len(s.Nodes[0].Cores) == 0 && len(s.McKubes) == 0 })
}

func TestEventsOfRealtimeWorkAreTold(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for i, e := range []struct{ kind, reason, message string }{
		{"Pod", events.ReasonMoved, "Moved from core 2: container app of pod ns/logger on core 3 of node n; brake"},
		{"McKube", events.ReasonMoved, "Moved from core 2: container app of pod ns/logger on core 3 of node n; brake"},
		{"Pod", "Scheduled", "no news"},
		{"McKube", events.ReasonRefused, "CoreFull: no core"},
		{"Node", events.ReasonPressureAnswered, "Rearrange, rung 2"},
		{"McKube", events.ReasonPressureAnswered, "Rearrange, rung 2"},
		{"Pod", events.ReasonPressureAnswered, "Rearrange, rung 2"},
	} {
		event := &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: string(rune('a' + i))}, Reason: e.reason, Message: e.message,
			InvolvedObject: corev1.ObjectReference{Kind: e.kind, Name: "x"},
		}
		if _, err := a.typed.CoreV1().Events("ns").Create(t.Context(), event, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	told := func() []observe.Decision { return a.recorder.Decisions(10) }
	a.until(t, func(observe.State) bool { return len(told()) == 3 })
	if moved, refused := told()[0], told()[1]; moved.Kind != observe.Placed || moved.Count != 2 || moved.Node != "" || refused.Kind != observe.Blocked {
		t.Errorf("%+v", told())
	}
	if answered := told()[2]; answered.Kind != observe.Planned || answered.Count != 1 || answered.Node != "x" {
		t.Errorf("%+v", answered)
	}
}
