package webhooks_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionapi "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// arrival is a gate over default/app with UID u2 on node n2, in the place of u1, which was on n1.
func arrival(t *testing.T, strategy v1alpha1.MigrationStrategy, phase v1alpha1.MigrationPhase, change ...func(*v1alpha1.PodMigration)) *gate {
	t.Helper()
	ended := metav1.NewMicroTime(evening)
	change = append([]func(*v1alpha1.PodMigration){func(o *v1alpha1.PodMigration) {
		o.Status.Strategy, o.Status.Source.Node = strategy, "n1"
		if phase.Over() {
			o.Status.CompletionTime, o.Status.Target = &ended, &v1alpha1.MigrationEnd{Node: "n2", PodName: "app", PodUID: "u2"}
		}
	}}, change...)
	g := newGate(t, migrationOf("eviction-u1", "u1", phase, change...), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
	g.pod.UID, g.pod.NodeName = "u2", "n2"
	return g
}

func ofUID(uid types.UID) func(*admissionapi.AdmissionRequest, *policyv1.Eviction) {
	return func(_ *admissionapi.AdmissionRequest, e *policyv1.Eviction) {
		e.DeleteOptions = &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	}
}

func (g *gate) expectOnly(t *testing.T, what string, names ...string) {
	t.Helper()
	var got []string
	for _, o := range g.migrations(t) {
		got = append(got, o.Name)
	}
	if strings.Join(got, " ") != strings.Join(names, " ") {
		t.Errorf("%s: PodMigrations %v, want %v", what, got, names)
	}
}

func expectGone(t *testing.T, what string, r *admissionapi.AdmissionResponse) {
	t.Helper()
	if r.Allowed || r.Result.Code != http.StatusNotFound || r.Result.Reason != metav1.StatusReasonNotFound || !strings.Contains(r.Result.Message, "another one of its name is in its place") {
		t.Errorf("%s: %+v, %+v", what, r, r.Result)
	}
}

// kubectl drain evicts by name, and comes again: in the place of the pod that it means is one of its name then, on
// another node. Until it is known to be what the other was it stays, whether it runs yet or not, and whichever client
// asks.
func TestThePodInAnothersPlaceIsNotEvictedWhileThatIsMigrated(t *testing.T) {
	for what, change := range map[string]func(*gate){
		"it waits behind the gate":   func(g *gate) { g.pod.Phase, g.pod.NodeName = corev1.PodPending, "" },
		"it is being restored":       func(g *gate) { g.pod.Phase, g.pod.Replaces = corev1.PodPending, "u1" },
		"it runs":                    func(g *gate) { g.pod.Replaces = "u1" },
		"it runs and is not marked":  func(*gate) {},
		"it is marked, another name": func(g *gate) { g.pod.Name, g.pod.Replaces = "other", "u1" },
		"no McKube governs it":       func(g *gate) { g.pod.Governed = nil },
		"nobody makes it again":      func(g *gate) { g.pod.Owned = false },
	} {
		for _, strategy := range []v1alpha1.MigrationStrategy{v1alpha1.StrategyCheckpoint, v1alpha1.StrategyRestart} {
			for _, phase := range []v1alpha1.MigrationPhase{v1alpha1.MigrationRestoring, v1alpha1.MigrationVerifying} {
				g := arrival(t, strategy, phase)
				change(g)
				for _, by := range []func(*admissionapi.AdmissionRequest, *policyv1.Eviction){
					func(*admissionapi.AdmissionRequest, *policyv1.Eviction) {}, ofUID("u2"),
				} {
					r := g.evict(t, func(r *admissionapi.AdmissionRequest, _ *policyv1.Eviction) { r.Name = g.pod.Name }, by)
					if r.Allowed {
						t.Fatalf("%s, %s, %s: it passes", what, strategy, phase)
					}
					expectLater(t, r, "in the place of one that is being migrated", "PodMigration eviction-u1 ("+string(phase)+")")
				}
				g.expectOnly(t, what, "eviction-u1")
			}
		}
	}
}

// Nor by who waits longer than the gate's deadline: what has gone has gone. Who means the new one, or wants its node empty, has waited long enough then.
func TestThePodInThePlaceOfOneWhoseMigrationTakesLong(t *testing.T) {
	g := arrival(t, v1alpha1.StrategyRestart, v1alpha1.MigrationVerifying)
	g.clock.SetTime(evening.Add(10 * time.Minute))
	expectGone(t, "by name", g.evict(t))
	expectPasses(t, g.evict(t, ofUID("u2")), "has not ended within 10m0s")
	g = arrival(t, v1alpha1.StrategyCheckpoint, v1alpha1.MigrationVerifying)
	g.clock.SetTime(evening.Add(time.Hour))
	expectLater(t, g.evict(t, ofUID("u2")), "its state is on its way")
}

// Once the migration is over, who comes again by name is told that the pod has gone, and is done. For five minutes; the pod's own name stays its own.
func TestWhoComesAgainWhenItsPodHasMovedIsDone(t *testing.T) {
	for what, change := range map[string]func(*gate){
		"by its target":             func(*gate) {},
		"by its mark":               func(g *gate) { g.pod.Replaces = "u1" },
		"it does not run":           func(g *gate) { g.pod.Phase, g.pod.NodeName = corev1.PodPending, "" },
		"no McKube governs it":      func(g *gate) { g.pod.Governed = nil },
		"its node has a soft taint": func(g *gate) { g.taint(t, corev1.TaintEffectPreferNoSchedule) },
	} {
		for _, phase := range []v1alpha1.MigrationPhase{v1alpha1.MigrationSucceeded, v1alpha1.MigrationSucceededWithoutState, v1alpha1.MigrationFailed} {
			g := arrival(t, v1alpha1.StrategyRestart, phase)
			change(g)
			g.clock.SetTime(evening.Add(5*time.Minute - 1))
			expectGone(t, what, g.evict(t))
			g.expectOnly(t, what, "eviction-u1")
		}
	}
	g := arrival(t, v1alpha1.StrategyRestart, v1alpha1.MigrationSucceeded)
	g.clock.SetTime(evening.Add(5 * time.Minute))
	expectLater(t, g.evict(t), "PodMigration eviction-u2 (Pending)")
	g = arrival(t, v1alpha1.StrategyRestart, v1alpha1.MigrationSucceeded, func(o *v1alpha1.PodMigration) { o.Name = "by-hand" })
	expectGone(t, "moved by hand", g.evict(t))
}

func (g *gate) taint(t *testing.T, effect corev1.TaintEffect) {
	t.Helper()
	n := &corev1.Node{}
	if err := g.api.Get(t.Context(), client.ObjectKey{Name: "n2"}, n); err != nil {
		t.Fatal(err)
	}
	n.Spec.Taints = []corev1.Taint{{Key: "karpenter.sh/disrupted", Effect: effect}}
	if err := g.api.Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

// Who means the new pod has it moved like any other: by its UID, by another name than the one that has gone, or as its own node is to be emptied, which counts from
// the moment at which the API server has it.
func TestTheNewPodIsEvictedForItsOwnSake(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*gate)
		by     func(*admissionapi.AdmissionRequest, *policyv1.Eviction)
	}{
		"by its UID": {by: ofUID("u2")},
		"by its version": {by: func(_ *admissionapi.AdmissionRequest, e *policyv1.Eviction) {
			version := "7"
			e.DeleteOptions = &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}}
		}},
		"another name": {change: func(g *gate) { g.pod.Name, g.pod.Replaces = "app-2", "u1" }},
		"cordoned": {change: func(g *gate) {
			if err := g.api.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`))); err != nil {
				t.Fatal(err)
			}
		}},
		"Karpenter closes it": {change: func(g *gate) { g.taint(t, corev1.TaintEffectNoSchedule) }},
		"its node is unknown": {change: func(g *gate) { g.pod.NodeName = "n3" }},
		"it is back where it was": {change: func(g *gate) {
			g.pod.NodeName = "n1"
		}},
	} {
		g := arrival(t, v1alpha1.StrategyRestart, v1alpha1.MigrationSucceeded)
		if c.change != nil {
			c.change(g)
		}
		if c.by == nil {
			c.by = func(*admissionapi.AdmissionRequest, *policyv1.Eviction) {}
		}
		r := g.evict(t, func(r *admissionapi.AdmissionRequest, _ *policyv1.Eviction) { r.Name = g.pod.Name }, c.by)
		if r.Allowed || r.Result.Code != http.StatusTooManyRequests {
			t.Errorf("%s: %+v, %+v", what, r, r.Result)
			continue
		}
		g.expectOnly(t, what, "eviction-u1", "eviction-u2")
	}
}

// A cache that shows the source as it goes, or nothing any longer, does not show yet what has taken its name.
func TestAnEvictionByNameWhileTheNameChangesHands(t *testing.T) {
	for what, change := range map[string]func(*gate){
		"it goes":     func(g *gate) { g.pod.UID, g.pod.Deleting = "u1", true },
		"it has gone": func(g *gate) { g.Pod = func(string, string) (*state.PodView, bool) { return nil, false } },
	} {
		for _, strategy := range []v1alpha1.MigrationStrategy{v1alpha1.StrategyCheckpoint, v1alpha1.StrategyRestart, v1alpha1.StrategyEvict, v1alpha1.StrategySurge} {
			g := arrival(t, strategy, v1alpha1.MigrationCuttingOver)
			change(g)
			if r := g.evict(t); r.Allowed != (strategy == v1alpha1.StrategySurge) { // of which the next one has another name
				t.Errorf("%s, %s: %+v", what, strategy, r)
			}
			expectPasses(t, g.evict(t, ofUID("u1")), "")
		}
		for _, phase := range []v1alpha1.MigrationPhase{v1alpha1.MigrationPending, v1alpha1.MigrationSucceeded} {
			g := arrival(t, v1alpha1.StrategyRestart, phase)
			change(g)
			expectPasses(t, g.evict(t), "")
		}
		g := arrival(t, v1alpha1.StrategyRestart, v1alpha1.MigrationCuttingOver)
		change(g)
		g.Client = interceptor.NewClient(g.api, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errLists
		}})
		expectPasses(t, g.evict(t), "it is not known whether a pod of its name takes its place")
	}
}

// Our own preemption, too, leaves a pod alone that stands still for a migration, which may be over; the action that has it stand still does not wait for itself.
func TestOurOwnEvictionOfAPodThatStandsStill(t *testing.T) {
	nc := &v1alpha1.NodeCheckpoint{ObjectMeta: metav1.ObjectMeta{Name: "migrate-1"}, Spec: v1alpha1.NodeCheckpointSpec{PodUID: "u1", Stage: v1alpha1.StageRestore}}
	own := func(action string) func(*admissionapi.AdmissionRequest, *policyv1.Eviction) {
		return func(r *admissionapi.AdmissionRequest, e *policyv1.Eviction) {
			ofUID("u1")(r, e)
			r.UserInfo.Username, e.Annotations = controllerUser, map[string]string{v1alpha1.AnnotationAction: action}
		}
	}
	g := newGate(t, migrationOf("by-hand", "u1", v1alpha1.MigrationFailed), nc)
	expectLater(t, g.evict(t, own("NoCore")), "stands still for NodeCheckpoint migrate-1")
	expectPasses(t, g.evict(t, own("migrate-1")), "")
	g.Deadline = 0
	expectPasses(t, g.evict(t, own("NoCore")), "")
	nc.Status.Source = &v1alpha1.CheckpointSide{State: v1alpha1.CheckpointDiscarded}
	expectPasses(t, newGate(t, nc).evict(t, own("NoCore")), "")
}

// Nor does it take what goes on with the state of another, as it does pods that wait, before that is known to do so.
func TestOurOwnEvictionOfAPodInAnothersPlace(t *testing.T) {
	for strategy, stays := range map[v1alpha1.MigrationStrategy]bool{v1alpha1.StrategyCheckpoint: true, v1alpha1.StrategyRestart: false} {
		g := arrival(t, strategy, v1alpha1.MigrationRestoring, func(o *v1alpha1.PodMigration) { o.Status.Action = "migrate-1" })
		g.pod.Phase, g.pod.NodeName, g.pod.Replaces = corev1.PodPending, "", "u1"
		for action, passes := range map[string]bool{"NoCore": !stays, "migrate-1": true} {
			r := g.evict(t, ofUID("u2"), func(r *admissionapi.AdmissionRequest, e *policyv1.Eviction) {
				r.UserInfo.Username, e.Annotations = controllerUser, map[string]string{v1alpha1.AnnotationAction: action}
			})
			if r.Allowed != passes {
				t.Errorf("%s, by %s: %+v, %+v", strategy, action, r, r.Result)
			}
		}
	}
}
