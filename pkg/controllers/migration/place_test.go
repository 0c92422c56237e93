package migration_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// Refusal implements migration.Placement.
func (w *town) Refusal(_ context.Context, node string, pods []*corev1.Pod) (string, error) {
	w.Helper()
	there := 0
	for _, p := range w.pods() {
		if p.Spec.NodeName == node {
			there++
		}
	}
	if w.seats > 0 && node == w.name("b") && there+len(pods) > w.seats {
		return fmt.Sprintf("it has %d seats", w.seats), nil
	}
	return "", nil
}

// Two pods are not evicted for the room of one, whatever each finds when it asks, and whichever process dies.
func TestRoomForOneIsNotGivenToTwo(t *testing.T) {
	t.Parallel()
	writes := 0
	play := func(dieAt int) {
		t.Run(fmt.Sprint("death ", dieAt), func(t *testing.T) {
			w := newTown(t, 2)
			w.seats, w.dieAt = 1, dieAt
			actions := w.play(nil, w.request("rt-1"), w.request("rt-2"))
			writes = max(writes, w.writes)
			var phases []string
			for _, o := range actions {
				phases = append(phases, string(o.Status.Phase))
				if o.Status.Phase == "RolledBack" && !strings.Contains(o.Status.Message, "it has 1 seats") {
					t.Errorf("it is %s: %s", o.Status.Phase, o.Status.Message)
				}
			}
			slices.Sort(phases)
			if got := strings.Join(phases, " "); got != "RolledBack Succeeded" {
				t.Errorf("the actions are %s", got)
			}
			if len(w.evicted) != 1 {
				t.Errorf("evicted %q", w.evicted)
			}
		})
	}
	play(0)
	for _, dieAt := range sampling.Points(t, 1, writes, deathsPerStory) {
		play(dieAt)
	}
}

// place has a pod go to the only node that it may go to, or has the scheduler say why it does not.
func (w *town) place(p *corev1.Pod, node string) {
	w.Helper()
	said := corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: "0/2 nodes are available: 1 " + w.word + ", 1 node(s) didn't match Pod's node affinity/selector.",
	}
	switch {
	case !w.crowded[node]:
		if w.lets(node, p) {
			w.bind(p, node, w.core)
		}
	case w.word != "" && !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == said.Type && c.Message == said.Message }):
		p.Status.Conditions = append(slices.DeleteFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == said.Type }), said)
		w.must(w.api.Status().Update(w.Context(), p))
	}
}

// A pod whose owner takes long to recreate it holds up others that go to the same node, but not for all the time that they have
// themselves.
func TestAPodThatIsNotMadeHoldsUpOthersForAWhile(t *testing.T) {
	t.Parallel()
	w := newTown(t, 2)
	w.lazy = true
	var list []orchestration.Request
	for _, pod := range []string{"rt-1", "rt-2"} {
		r := w.request(pod)
		r.Timeout = time.Minute
		list = append(list, r)
	}
	first, second := -1, -1
	actions := w.play(func(turn int, p *process) {
		switch {
		case first < 0 && len(w.evicted) > 0: // and gone: while it is there, there is room beside it
			first = turn
			w.submit(p, list[1])
		case second < 0 && len(w.evicted) > 1:
			second, w.lazy = turn, false
		}
	}, list[0])
	if len(actions) != 2 {
		t.Fatalf("%d actions, want 2", len(actions))
	}
	for _, o := range actions {
		if o.Status.Phase != "Succeeded" {
			t.Errorf("it is %s: %s", o.Status.Phase, o.Status.Message)
		}
	}
	if waited := second - first; waited < 20 || waited > 40 {
		t.Errorf("the second was evicted after %d s", waited)
	}
}

// The scheduler gives one pod the core that another action has reserved, beside the one that its own action has. Until that gives its
// reservation back there seems to be no room. The other action waits for that, and its pod goes to the node all the same.
func TestAPodThatIsPlacedOnAnothersCore(t *testing.T) {
	t.Parallel()
	w := newTown(t, 2)
	w.gating = true
	w.rollout(2)
	w.strangerOn("b", 0, 300_000) // beside which a core takes one pod
	w.strangerOn("b", 1, 300_000)
	var asked []string
	for _, p := range w.pods() {
		if !metav1.IsControlledBy(&p, w.owner) {
			continue
		}
		asked = append(asked, "move-"+p.Name)
		w.asks(p.Name, by("Surge"), func(o *v1alpha1.PodMigration) { o.Spec.TargetNode = w.name("b") })
	}
	p := w.start()
	w.must(p.turn())
	queue := p.queue.Loops()
	step := func(action string) *v1alpha1.RTAction {
		_, err := queue[1].Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: action}})
		w.must(err)
		w.clock.Step(time.Second)
		o := &v1alpha1.RTAction{}
		w.must(w.api.Get(t.Context(), client.ObjectKey{Name: action}, o))
		p.look()
		return o
	}
	reserved := func(o *v1alpha1.RTAction) int {
		room, err := state.ParseMigration(o.Status.Progress[state.ProgressReserved])
		if err != nil || len(room.Cores) != 1 {
			t.Fatalf("%s has reserved %+v, %v", o.Name, room, err)
		}
		return room.Cores[0].Core
	}
	for range 3 {
		for _, name := range asked {
			p.one(name)
		}
		p.look()
	}
	_, err := queue[0].Reconcile(t.Context(), reconcile.Request{})
	w.must(err)
	p.look()
	actions := w.actions(t.Context())
	if len(actions) != 2 {
		t.Fatalf("%d actions: %s; %s", len(actions), w.moves()[0].Status.Message, w.moves()[1].Status.Message)
	}
	first, second := step(actions[0].Name), step(actions[1].Name)
	own := reserved(first)
	if w.core = reserved(second); own == w.core {
		t.Fatal("both have reserved one core")
	}
	for range 3 { // until its copy is made, and bound
		first = step(first.Name)
		w.live()
		p.look()
	}
	step(second.Name)
	if now, _ := p.queue.Get(second.Name); now.Phase != rules.Running || !strings.Contains(now.Message, "waits until action "+first.Name) {
		t.Errorf("the second is %s: %s", now.Phase, now.Message)
	}
	if second = step(second.Name); second.Status.Progress[state.ProgressReserved] != "" {
		t.Errorf("it keeps a reservation on record: %v", second.Status.Progress)
	}
	w.core = own
	for range 60 {
		w.must(p.turn())
	}
	for _, o := range w.actions(t.Context()) {
		if o.Status.Phase != "Succeeded" {
			t.Errorf("%s is %s: %s", o.Name, o.Status.Phase, o.Status.Message)
		}
	}
	if got := w.places(); got != "b b" || len(w.actions(t.Context())) != 2 {
		t.Errorf("pods are on %s, after %d actions", got, len(w.actions(t.Context())))
	}
}
