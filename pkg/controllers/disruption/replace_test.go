package disruption_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// pressed is a world with a node of two cores whose pod takes half of one, and an action to replace it that has been
// told which node is meant.
func pressed(t *testing.T) (*world, *corev1.Pod) {
	t.Helper()
	w := begin(t, statetest.Cores(2)...)
	w.node("old", "edge", statetest.Cores(2)...)
	pod := w.pod("control", "old", 50)
	w.submit("replace-1", "old")
	w.expectMessage(w.step("replace-1"), "Karpenter is asked")
	return w, pod
}

// underWay is a pressed world whose replacement is being opened, and its NodeClaim.
func underWay(t *testing.T) (*world, string) {
	t.Helper()
	w, _ := pressed(t)
	w.pass()
	if got, opened := w.disrupted(), w.opened(); !slices.Equal(got, []string{"old"}) || len(opened) != 1 {
		t.Fatalf("Karpenter closes %v for %v, want old for one", got, opened)
	}
	return w, w.opened()[0]
}

// expectRolledBack takes steps until the action is over, which must be undone.
func (w *world) expectRolledBack(name string) rules.Result {
	w.Helper()
	var last rules.Result
	for range 5 {
		if last = w.step(name); last.Outcome != "" {
			break
		}
	}
	if last.Outcome != rules.RolledBack {
		w.Fatalf("it came to %+v, want RolledBack", last)
	}
	w.pass()
	return last
}

func TestANodeUnderPressureIsReplaced(t *testing.T) {
	w, pod := pressed(t)
	w.pass()
	opened := w.opened()
	if got := w.disrupted(); !slices.Equal(got, []string{"old"}) || len(opened) != 1 {
		t.Fatalf("Karpenter closes %v for %v, want old for one", got, opened)
	}
	claim := &karpv1.NodeClaim{}
	w.must(w.client.Get(w.ctx, types.NamespacedName{Name: opened[0]}, claim))
	for _, r := range claim.Spec.Requirements {
		if r.Key == corev1.LabelInstanceTypeStable && !slices.Equal(r.Values, []string{"edge"}) {
			t.Errorf("it may be any of %v: the cheaper one has no cores", r.Values)
		}
	}
	result := w.step("replace-1")
	w.expectMessage(result, "NodeClaim "+opened[0]+" is not Launched")
	if len(result.Spent) != 1 || result.Spent[0] != (rules.Key{Resource: rules.PoolBudget, Name: "general"}) {
		t.Errorf("spent is %v: Karpenter counts the node already", result.Spent)
	}
	w.join(opened[0], statetest.Cores(2)...)
	w.carry("old")
	w.expectMessage(w.step("replace-1"), "there are still container app of pod default/control")
	w.evict(pod)
	if result := w.step("replace-1"); result.Outcome != rules.Succeeded {
		t.Errorf("it is not over: %+v", result)
	}
}

func (w *world) evict(pod *corev1.Pod) {
	w.Helper()
	w.must(w.client.Delete(w.ctx, pod, client.GracePeriodSeconds(0)))
	w.must(w.store.Delete(pod))
	w.must(w.store.Delete(heldFor(pod, pod.Spec.NodeName, 50)))
	w.cluster.DeletePod(client.ObjectKeyFromObject(pod))
}

// A node whose pods have room on others needs no replacement.
func TestANodeWhosePodsHaveRoomIsClosedOnly(t *testing.T) {
	w, _ := pressed(t)
	w.node("other", "edge", statetest.Cores(2)...)
	w.pass()
	if got := w.disrupted(); !slices.Equal(got, []string{"old"}) || len(w.opened()) != 0 {
		t.Errorf("Karpenter closes %v and has opened %v, want old and none", got, w.opened())
	}
}

func TestABudgetOfZeroIsWaitedFor(t *testing.T) {
	w, _ := pressed(t)
	w.pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}, {Nodes: "0", Reasons: []karpv1.DisruptionReason{"RTPressure"}}}
	w.must(w.client.Update(w.ctx, w.pool))
	w.pass()
	if got := w.disrupted(); len(got) != 0 {
		t.Fatalf("Karpenter closes %v against the budget", got)
	}
	result := w.step("replace-1")
	w.expectMessage(result, "disruption budgets of NodePool general allow no more nodes for reason RTPressure")
	if result.Undo {
		t.Error("it is given up, and budgets change")
	}
	w.pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "1"}}
	w.must(w.client.Update(w.ctx, w.pool))
	w.pass()
	if got := w.disrupted(); !slices.Equal(got, []string{"old"}) {
		t.Errorf("Karpenter closes %v with the budget open", got)
	}
}

// A controller that asked for it and said by when it was to begin tries something else then; one that did not say so waits.
func TestABudgetThatStaysClosedIsNotWaitedForForEver(t *testing.T) {
	w, _ := pressed(t)
	w.pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}}
	w.must(w.client.Update(w.ctx, w.pool))
	w.pass()
	w.clock.Step(time.Minute)
	if result := w.step("replace-1"); result.Undo {
		t.Fatalf("it is given up, and nobody is in a hurry: %+v", result)
	}
	w.begunBy("replace-1", 90*time.Second)
	if result := w.step("replace-1"); result.Undo {
		t.Fatalf("it is given up after a minute of 90 s: %+v", result)
	}
	w.clock.Step(31 * time.Second)
	result := w.step("replace-1")
	w.expectMessage(result, "it waited for: disruption budgets of NodePool general allow no more nodes")
	if !result.Undo {
		t.Errorf("it goes on: %+v", result)
	}
	w.expectRolledBack("replace-1")
	w.expectUntouched("old")
}

// What has begun in time takes its time, also under the next leader, which begins it again.
func TestWhatHasBegunInTimeTakesItsTime(t *testing.T) {
	w, _ := underWay(t)
	w.begunBy("replace-1", 30*time.Second)
	w.step("replace-1")
	w.clock.Step(time.Minute)
	w.restart()
	if result := w.step("replace-1"); result.Undo {
		t.Errorf("it is given up: %+v", result)
	}
}

// meanwhile is a reader during whose next answer something happens.
type meanwhile struct {
	client.Reader
	do func()
}

func (m *meanwhile) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if do := m.do; do != nil {
		m.do = nil
		do()
	}
	return m.Reader.Get(ctx, key, into, options...)
}

func TestACommandThatBeginsWhileAStepIsTakenIsNotTakenForOneGivenUp(t *testing.T) {
	w, _ := pressed(t)
	w.reader.do = w.pass
	if result := w.step("replace-1"); result.Undo {
		t.Errorf("it is given up as it begins: %+v", result)
	}
	if got := w.disrupted(); !slices.Equal(got, []string{"old"}) {
		t.Fatalf("Karpenter closes %v meanwhile, want old", got)
	}
	w.expectMessage(w.step("replace-1"), "is not Launched")
}

func TestARefusedReplacementIsTakenBack(t *testing.T) {
	w, opened := underWay(t)
	w.step("replace-1")
	claim := &karpv1.NodeClaim{} // Karpenter deletes what a provider refuses
	w.must(w.client.Get(w.ctx, types.NamespacedName{Name: opened}, claim))
	w.must(w.client.Delete(w.ctx, claim))
	w.sync()
	w.carry("old")
	result := w.step("replace-1")
	w.expectMessage(result, "refused by the provider or did not get ready in time; last seen: NodeClaim "+opened+" is not Launched")
	if !result.Undo {
		t.Errorf("it goes on: %+v", result)
	}
	w.expectRolledBack("replace-1")
	w.expectUntouched("old")
}

func TestAReplacementThatIsNeverReadyIsTakenBack(t *testing.T) {
	w, opened := underWay(t)
	w.clock.Step(11 * time.Minute) // longer than Karpenter waits
	w.carry("old")
	if result := w.step("replace-1"); !result.Undo {
		t.Fatalf("it goes on: %+v", result)
	}
	w.expectMessage(w.expectRolledBack("replace-1"), "its replacement "+opened+" is discarded")
	w.expectUntouched("old")
	if left := w.opened(); len(left) != 0 {
		t.Errorf("%v are left of it", left)
	}
}

func TestWithdrawnMidwayTheNodeServesOn(t *testing.T) {
	w, opened := underWay(t)
	w.withdraw("replace-1")
	w.expectMessage(w.step("replace-1"), "taken back")
	w.expectMessage(w.expectRolledBack("replace-1"), "its replacement "+opened+" is discarded")
	w.expectUntouched("old")
	w.pass()
	if got := w.disrupted(); len(got) != 0 || len(w.opened()) != 0 {
		t.Errorf("Karpenter closes %v and has opened %v for an action that is over", got, w.opened())
	}
}

// What pods have come to is no longer the action's to discard.
func TestAReplacementThatIsInUseStays(t *testing.T) {
	w, opened := underWay(t)
	w.join(opened, statetest.Cores(2)...)
	w.pod("early", opened, 10)
	w.withdraw("replace-1")
	w.expectMessage(w.expectRolledBack("replace-1"), "its replacement "+opened+" stays, for pods are there already")
	w.expectUntouched("old")
}

// A node that is being deleted is not brought back: the action ends with it.
func TestTooLateToTakeBack(t *testing.T) {
	w, pod := pressed(t)
	w.pass()
	w.join(w.opened()[0], statetest.Cores(2)...)
	w.carry("old")
	w.withdraw("replace-1")
	closing := w.step("replace-1")
	w.expectMessage(closing, "is being closed; there are still container app")
	if !slices.Contains(closing.Spent, rules.Key{Resource: rules.Node, Name: "old"}) {
		t.Errorf("spent is %v: migrations off the node would wait for it", closing.Spent)
	}
	w.finish("old", pod)
	if result := w.step("replace-1"); result.Outcome != rules.Succeeded {
		t.Errorf("it came to %+v, and the node is closed", result)
	}
}

// finish is what Karpenter's termination does at last.
func (w *world) finish(name string, pods ...*corev1.Pod) {
	w.Helper()
	for _, pod := range pods {
		w.evict(pod)
	}
	claim, node := &karpv1.NodeClaim{}, &corev1.Node{}
	w.must(w.client.Get(w.ctx, types.NamespacedName{Name: name}, node))
	w.must(w.client.Delete(w.ctx, node))
	w.must(w.store.Delete(node))
	w.must(w.client.Get(w.ctx, types.NamespacedName{Name: name}, claim))
	claim.Finalizers = nil
	w.must(w.client.Update(w.ctx, claim))
	w.must(client.IgnoreNotFound(w.client.Delete(w.ctx, claim)))
	w.sync()
}

func TestANodePoolThatGoesTakesItsNodesAlong(t *testing.T) {
	w, pod := pressed(t)
	w.must(w.client.Delete(w.ctx, w.pool))
	w.pass()
	result := w.step("replace-1")
	w.expectMessage(result, "NodePool")
	if len(w.disrupted()) != 0 || len(w.opened()) != 0 {
		t.Errorf("a node was opened or closed without NodePool: %v, %v", w.disrupted(), w.opened())
	}
	w.finish("old", pod) // its NodeClaims are deleted with it
	if result := w.step("replace-1"); result.Outcome != rules.Succeeded {
		t.Errorf("the node is gone, and the action is %+v", result)
	}
}

func TestWhatCannotBeReplacedIsGivenUp(t *testing.T) {
	w, _ := pressed(t)
	w.cloud.InstanceTypes = w.cloud.InstanceTypes[:1] // no machine with cores is offered any longer
	w.pass()
	result := w.step("replace-1")
	w.expectMessage(result, "no machine that could replace it has a core that admits container app of pod default/control")
	if !result.Undo {
		t.Errorf("it waits: %+v", result)
	}
	w.expectRolledBack("replace-1")
	w.expectUntouched("old")

	w.submit("replace-2", "nowhere")
	w.expectMessage(w.step("replace-2"), "Node nowhere is gone")
	w.create(statetest.Node("foreign", ""))
	w.sync()
	w.submit("replace-3", "foreign")
	w.expectMessage(w.step("replace-3"), "Karpenter does not manage node foreign")
}

func TestAUsersVetoIsTold(t *testing.T) {
	w, _ := pressed(t)
	node := &corev1.Node{}
	w.must(w.client.Get(w.ctx, types.NamespacedName{Name: "old"}, node))
	node.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}
	w.must(w.client.Update(w.ctx, node))
	w.sync()
	w.pass()
	result := w.step("replace-1")
	w.expectMessage(result, "do-not-disrupt")
	if !result.Undo {
		t.Errorf("it waits: %+v", result)
	}
}

// No replacement is opened for a node whose pods may not be evicted: one that a policy keeps is given up, in the policy's words.
func TestWhatAPolicyKeepsIsAskedBefore(t *testing.T) {
	w := begin(t, statetest.Cores(2)...)
	w.client = interceptor.NewClient(w.client, interceptor.Funcs{
		SubResourceCreate: func(ctx context.Context, c client.Client, name string, o, body client.Object, options ...client.SubResourceCreateOption) error {
			if name == "eviction" {
				return apierrors.NewForbidden(corev1.Resource("pods"), o.GetName(), errors.New("the shift is not over"))
			}
			return c.SubResource(name).Create(ctx, o, body, options...)
		},
	})
	w.restart()
	w.node("old", "edge", statetest.Cores(2)...)
	w.pod("control", "old", 50)
	w.submit("replace-1", "old")
	w.expectMessage(w.step("replace-1"), "Karpenter is asked")
	w.pass()
	result := w.step("replace-1")
	w.expectMessage(result, "pod default/control may not be evicted")
	w.expectMessage(result, "the shift is not over")
	if !result.Undo || len(w.opened()) > 0 {
		t.Errorf("%+v, opened %v", result, w.opened())
	}
	w.expectRolledBack("replace-1")
	w.expectUntouched("old")
}

// While another action moves a pod of the node, the node waits.
func TestAMigrationOffTheNodeComesFirst(t *testing.T) {
	w, pod := pressed(t)
	migrate := &v1alpha1.RTAction{}
	migrate.Name, migrate.Spec.Kind, migrate.Status.Phase = "migrate-1", "Migrate", "Running"
	migrate.Spec.Pods = []v1alpha1.ActionPod{{Namespace: "default", Name: pod.Name, UID: pod.UID}}
	w.actions["migrate-1"] = migrate
	w.pass()
	w.expectMessage(w.step("replace-1"), "action migrate-1 has pod default/control in hand")
	if got := w.disrupted(); len(got) != 0 {
		t.Fatalf("Karpenter closes %v during the migration", got)
	}
	migrate.Status.Phase = "Succeeded"
	w.pass()
	if got := w.disrupted(); !slices.Equal(got, []string{"old"}) {
		t.Errorf("Karpenter closes %v after the migration", got)
	}
}
