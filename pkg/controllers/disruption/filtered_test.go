package disruption_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpdisruption "sigs.k8s.io/karpenter/pkg/controllers/disruption"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/disruption"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// consolidating is a world whose NodePool closes what is underused.
func consolidating(t *testing.T) *world {
	t.Helper()
	w := begin(t, statetest.Cores(1)...)
	w.pool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("0s")
	w.must(w.client.Update(w.ctx, w.pool))
	return w
}

// said tells whether an Event about a node has the text.
func (w *world) said(text string) bool {
	return slices.ContainsFunc(w.messages(), func(m string) bool { return strings.Contains(m, text) })
}

func (w *world) messages() (out []string) {
	for _, e := range w.events.Events() {
		out = append(out, e.Message)
	}
	return out
}

// Two nodes of one core each carry a container of 60 % without claim. By CPU requests one machine is enough for both,
// and Karpenter's simulation says so; no core admits both.
func TestConsolidationThatSumsAllowAndAdmissionRefuses(t *testing.T) {
	w := consolidating(t)
	for _, name := range []string{"a", "b"} {
		w.node(name, "edge", statetest.Cores(1)...)
		w.pod("pod-"+name, name, 60)
	}
	w.pass()
	if got := w.disrupted(); len(got) != 0 {
		t.Fatalf("consolidation closes %v, and a container there finds no core", got)
	}
	if !w.said("NoCoreElsewhere: no other node has a core that admits container app of pod default/pod-") {
		t.Errorf("the node is not told why: %q", w.messages())
	}
	for _, name := range []string{"a", "b"} {
		w.expectUntouched(name)
	}
	w.cluster.MarkUnconsolidated()
	w.passOf(w.stock())
	if got := w.disrupted(); len(got) == 0 {
		t.Error("Karpenter's own loop closes none of them either, so nothing was refused")
	}
}

// Of the two nodes that stay one has CPU for the pod and no core, and the other a core, but CPU only where what runs there asks for little. A core
// is of use only to a pod that can come to it.
func TestACoreWithoutWhatElseAPodAsksForIsNone(t *testing.T) {
	for cpu, closes := range map[string]int{"3950m": 0, "100m": 1} {
		t.Run(cpu, func(t *testing.T) {
			w := consolidating(t)
			for name, percent := range map[string]int64{"a": 60, "b": 50} {
				w.node(name, "edge", statetest.Cores(1)...)
				w.pod("pod-"+name, name, percent)
			}
			w.node("c", "edge", statetest.Cores(1)...)
			stays := statetest.Pod("default", "stays", "", "app")
			stays.CreationTimestamp, stays.Annotations = metav1.Time{}, map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}
			stays.Spec.NodeName, stays.Spec.Containers[0].Image, stays.Status.Phase = "c", "app", corev1.PodRunning
			stays.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
			w.create(stays)
			w.sync()
			w.pass()
			if got := w.disrupted(); len(got) != closes {
				t.Errorf("consolidation closes %v, want %d: %q", got, closes, w.messages())
			}
			if closes == 0 && !w.said("NoCoreElsewhere: ") {
				t.Errorf("the nodes are not told why: %q", w.messages())
			}
		})
	}
}

// The same with room: the simulation's command is carried out.
func TestConsolidationThatAdmissionAllows(t *testing.T) {
	w := consolidating(t)
	for _, name := range []string{"a", "b"} {
		w.node(name, "edge", statetest.Cores(1)...)
		w.pod("pod-"+name, name, 40)
	}
	w.pass()
	if got := w.disrupted(); len(got) != 1 {
		t.Errorf("consolidation closes %v, want one of two half empty nodes", got)
	}
}

// three are nodes of which any may go. Closing b moves more pods than closing another, but none that is real-time.
func three(t *testing.T) *world {
	t.Helper()
	w := consolidating(t)
	for _, name := range []string{"a", "b", "c"} {
		w.node(name, "edge", statetest.Cores(1)...)
	}
	w.pod("pod-a", "a", 10)
	w.pod("pod-b", "b", 0)
	w.pod("second-b", "b", 0)
	w.pod("pod-c", "c", 10)
	return w
}

func TestTheNodeWithoutRealTimeWorkGoesFirst(t *testing.T) {
	w := three(t)
	w.pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "1"}}
	w.must(w.client.Update(w.ctx, w.pool))
	w.pass()
	if got := w.disrupted(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("consolidation closes %v, want b, which has no real-time work", got)
	}
}

func TestOfSeveralNodesThatGoTheOneWithoutRealTimeWorkIsAmongThem(t *testing.T) {
	w := three(t)
	w.pass()
	if got := w.disrupted(); len(got) != 2 || !slices.Contains(got, "b") {
		t.Errorf("consolidation closes %v, want two, and b, which has no real-time work, among them", got)
	}
}

// budget has the container of a node, whose budgets are 10 and 20 ms, run with one of so many µs.
func (w *world) budget(node string, us int64) {
	w.Helper()
	n, _ := w.store.Snapshot().NodeView(node)
	pod := n.Servers[0]
	rtn := statetest.RTNode(w.live(node), v1alpha1.RTServer{PodUID: pod.PodUID, Namespace: "default", Pod: pod.Pod, Container: "app",
		Criticality: "High", PeriodUs: 100_000, DeadlineUs: 100_000, BudgetLowUs: 10_000, BudgetHighUs: 20_000, Cores: []int32{0}})
	rtn.Status.Servers = []v1alpha1.RTServerStatus{{PodUID: pod.PodUID, Container: "app", BudgetUs: us}}
	w.must(w.store.Update(rtn))
}

// The standard methods close no node that an action has in hand, nor a node on which a container has a raised budget.
func TestConsolidationLeavesBusyNodesAlone(t *testing.T) {
	for name, busy := range map[string]func(*world){
		"ActionInFlight": func(w *world) {
			for _, node := range []string{"a", "b"} {
				a := &v1alpha1.RTAction{}
				a.Name, a.Spec.Kind, a.Spec.Node, a.Status.Phase = "rearrange-"+node, "Rearrange", node, "Running"
				w.actions[a.Name] = a
			}
		},
		"ContainerEscalated": func(w *world) {
			for _, node := range []string{"a", "b"} {
				w.budget(node, 20_000)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := consolidating(t)
			for _, node := range []string{"a", "b"} {
				w.node(node, "edge", statetest.Cores(1)...)
				w.pod("pod-"+node, node, 20)
			}
			busy(w)
			w.pass()
			if got := w.disrupted(); len(got) != 0 {
				t.Errorf("consolidation closes %v", got)
			}
			if !w.said(name + ": ") {
				t.Errorf("the node is not told why: %q", w.messages())
			}
		})
	}
}

// slow is a method whose search takes for ever.
type slow struct {
	karpdisruption.Method
	begun chan struct{}
}

func (slow) Reason() karpv1.DisruptionReason { return karpv1.DisruptionReasonDrifted }

func (slow) ConsolidationType() string { return "" }

func (s slow) ComputeCommands(ctx context.Context, _ map[string]int, _ ...*karpdisruption.Candidate) ([]karpdisruption.Command, error) {
	close(s.begun)
	<-ctx.Done()
	return nil, ctx.Err()
}

// The trigger ends a slow search, which counts as one that has not looked.
func TestASlowSearchIsInterrupted(t *testing.T) {
	w := begin(t)
	node := w.node("a", "plain")
	search := slow{begun: make(chan struct{})}
	method := disruption.NewFiltered(w.dependencies, search, search)
	before := w.cluster.ConsolidationState()
	w.clock.Step(1)
	done := make(chan error)
	go func() {
		commands, err := method.ComputeCommands(w.ctx, nil, w.candidate(node.Name))
		if len(commands) > 0 {
			t.Errorf("it has come to %v", commands)
		}
		done <- err
	}()
	<-search.begun
	w.trigger.Fire()
	if err := <-done; err != nil {
		t.Errorf("the loop would back off for: %v", err)
	}
	if w.cluster.ConsolidationState().Equal(before) {
		t.Error("the search that was interrupted would not be made again")
	}
	if method.ShouldDisrupt(w.ctx, w.candidate(node.Name)) {
		t.Error("the rest of the pass looks for candidates while somebody waits")
	}
}

// Karpenter's own consolidation waits 15 s before it acts on what it has found. The clock stands still here, so that only the
// trigger ends that wait. The loop does not take that for a fault, and the next pass finds the same again.
func TestConsolidationsOwnWaitIsInterrupted(t *testing.T) {
	w := consolidating(t)
	for _, name := range []string{"a", "b"} {
		w.node(name, "edge", statetest.Cores(1)...)
		w.pod("pod-"+name, name, 40)
	}
	done := make(chan error)
	go func() {
		_, err := w.loop.Reconcile(w.ctx)
		done <- err
	}()
	for !w.clock.HasWaiters() {
		select {
		case err := <-done:
			t.Fatalf("consolidation did not wait: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	w.trigger.Fire()
	w.must(<-done)
	if got := w.disrupted(); len(got) != 0 {
		t.Errorf("consolidation closes %v although it was interrupted", got)
	}
	w.pass()
	if got := w.disrupted(); len(got) != 1 {
		t.Errorf("consolidation closes %v in the next pass, want one", got)
	}
}
