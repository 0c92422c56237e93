package webhooks_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/webhooks"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func built(t *testing.T, objects ...runtime.Object) (webhooks.Cluster, *clocktesting.FakeClock) {
	t.Helper()
	clock := clocktesting.NewFakeClock(start)
	store, err := state.Build(state.Options{Granularity: granularity, Clock: clock}, objects...)
	if err != nil {
		t.Fatal(err)
	}
	return webhooks.FromStore(store, clock), clock
}

func withUID[T interface{ SetUID(types.UID) }](object T, uid types.UID) T {
	object.SetUID(uid)
	return object
}

func TestTheCacheAnswersOnlyWhenItIsComplete(t *testing.T) {
	empty := webhooks.FromStore(state.New(state.Options{}), clocktesting.NewFakeClock(start))
	if empty.Synced() == nil {
		t.Error("an empty cache answers")
	}
	if whole, _ := built(t); whole.Synced() != nil {
		t.Errorf("a complete one does not: %v", whole.Synced())
	}
}

func TestTheCacheKnowsMcKubesAndPods(t *testing.T) {
	app := withUID(labelled(pod("app"), "app", "web"), "p1")
	app.Spec.InitContainers = []corev1.Container{{Name: "proxy", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
	named, elsewhere := withUID(mckube("m"), "m1"), withUID(mckube("m", in("other")), "m2")
	deleting := withUID(mckube("gone"), "m3")
	deleting.DeletionTimestamp, deleting.Finalizers = &metav1.Time{Time: start}, []string{mcv1.Finalizer}
	cluster, _ := built(t, app, named, elsewhere, deleting)

	if got := cluster.McKubesFor(pod("app")); len(got) != 1 || got[0].UID != "m1" {
		t.Errorf("McKubes of the pod: %v", got)
	}
	if got := cluster.McKubesIn("default"); len(got) != 1 || got[0].UID != "m1" {
		t.Errorf("McKubes of the namespace: %v", got)
	}
	for what, m := range map[string]*mcv1.McKube{
		"known": named, "new, by name": mckube("new"), "new, by label": mckube("new", selecting("app", "web")),
	} {
		got := cluster.PodsFor(m)
		if len(got) != 1 || got[0].Name != "app" || len(got[0].Spec.Containers) != 1 || len(got[0].Spec.InitContainers) != 1 {
			t.Errorf("%s: pods %+v", what, got)
		}
	}
	if got := cluster.PodsFor(mckube("new", selecting("app", "db"))); len(got) != 0 {
		t.Errorf("pods of nobody: %+v", got)
	}
}

func TestPreemptionsEndAtTheirDeadline(t *testing.T) {
	room := state.Preemption{Node: "n", Deadline: metav1.Time{Time: start.Add(time.Minute)}}
	text, err := room.Encode()
	if err != nil {
		t.Fatal(err)
	}
	waiting := withUID(annotated(pod("app"), mcv1.AnnotationPreempting, text), "p1")
	waiting.Status.Phase = corev1.PodPending
	cluster, clock := built(t, waiting, withUID(mckube("m", critical("middle")), "m1"))
	if got, any := cluster.Preempting(); !any || got != rt.Middle {
		t.Errorf("%v, %t", got, any)
	}
	clock.Step(2 * time.Minute)
	if got, any := cluster.Preempting(); any {
		t.Errorf("after the deadline: %v", got)
	}
}

// A plan beyond what the controller plans holds no other tenant's pods back.
func TestAPlanThatTheControllerDidNotMakeHoldsNoPodBack(t *testing.T) {
	for what, text := range map[string]string{
		"until 2099":      `{"node":"n","core":1,"deadline":"2099-01-01T00:00:00Z","life":"1m0s"}`,
		"of two hours":    fmt.Sprintf(`{"node":"n","core":1,"deadline":%q,"life":"2h0m0s"}`, start.Add(time.Minute).Format(time.RFC3339)),
		"many victims":    fmt.Sprintf(`{"node":"n","core":1,"deadline":%q,"life":"1m0s","victims":["x"%s]}`, start.Add(time.Minute).Format(time.RFC3339), strings.Repeat(`,"x"`, 256)),
		"many bytes":      fmt.Sprintf(`{"node":%q,"core":1,"deadline":%q,"life":"1m0s"}`, strings.Repeat("n", 1<<16), start.Add(time.Minute).Format(time.RFC3339)),
		"no plan":         `[]`,
		"a negative life": fmt.Sprintf(`{"node":"n","core":1,"deadline":%q,"life":"-1m0s"}`, start.Add(time.Minute).Format(time.RFC3339)),
	} {
		waiting := withUID(annotated(pod("app"), mcv1.AnnotationPreempting, text), "p1")
		waiting.Status.Phase = corev1.PodPending
		cluster, _ := built(t, waiting, withUID(mckube("m", critical("high")), "m1"))
		if got, any := cluster.Preempting(); any {
			t.Errorf("%s: %v", what, got)
		}
	}
}
