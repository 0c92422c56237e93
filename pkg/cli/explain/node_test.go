package explain_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/cli/explain"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// nodeText explains node-c, on which brake runs, with actions.
func nodeText(t *testing.T, pressure *metav1.Condition, actions ...*v1alpha1.RTAction) string {
	t.Helper()
	objects := running(func(_ *corev1.Pod, _ *mcv1.McKube, n *v1alpha1.RTNode) {
		if pressure != nil {
			n.Status.Conditions = append(n.Status.Conditions, *pressure)
		}
	})
	for _, o := range objects {
		if n, ok := o.(*corev1.Node); ok && pressure != nil {
			n.Spec.Taints = []corev1.Taint{{Key: mcv1.TaintPressure, Effect: corev1.TaintEffectNoSchedule}}
		}
	}
	e, err := explain.Node(statetest.Build(objects...), "node-c")
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := explain.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	all := append([]runtime.Object{}, objects...)
	for _, a := range actions {
		all = append(all, a)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithRuntimeObjects(all...).Build()
	if err := e.AddActions(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := e.Text(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestNode(t *testing.T) {
	t.Parallel()
	calm := nodeText(t, nil)
	if !strings.HasPrefix(calm, "Node node-c is under no real-time pressure; its agent is Alive.\n") || !strings.Contains(calm, "car/brake/app") {
		t.Errorf("got %s", calm)
	}
	begun := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pressure := &metav1.Condition{
		Type: v1alpha1.ConditionRTPressure, Status: metav1.ConditionTrue, Reason: "DeadlineMisses", Message: "container app misses deadlines",
		LastTransitionTime: metav1.NewTime(begun),
	}
	action := func(name, cause, message string) *v1alpha1.RTAction {
		o := &v1alpha1.RTAction{ObjectMeta: metav1.ObjectMeta{Name: name}}
		o.Spec = v1alpha1.RTActionSpec{Kind: "Migrate", Reason: "RTPressure", Cause: cause, Node: "node-c", Message: message}
		o.Status.Phase, o.Status.Message = "RolledBack", "no room there"
		return o
	}
	cause := v1alpha1.PressureCause("rtn-c", begun)
	got := nodeText(t, pressure, action("migrate-1", cause, "moving car/video to node-d frees 100000 ppm"), action("migrate-2", "pressure/rtn-c/1", "an earlier one"))
	for _, want := range []string{
		"Node node-c is under real-time pressure since 2026-01-02T03:04:05Z (DeadlineMisses), with taint McKubeRTDeadlinePressure: container app misses deadlines.",
		"RolledBack   rung 3 Migrate (RTPressure), action migrate-1", "moving car/video to node-d frees 100000 ppm", "no room there",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("it does not say %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "migrate-2") {
		t.Errorf("it tells what was done about another pressure:\n%s", got)
	}
	if _, err := explain.Node(statetest.Build(), "nowhere"); err == nil {
		t.Error("a node that is not there is explained")
	}
}
