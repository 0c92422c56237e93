package rtruntime

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/orchestration/pdb"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// The decisions of the preemption loops.
type (
	Room           = room
	PreemptionStep = preemptionStep
)

// Times of plans.
const (
	PreemptionLife = preemptionLife
	PreemptionRest = preemptionRest
)

// LifeFor is how long a plan may take.
var LifeFor = lifeFor

// RestAfter is how long nothing is tried again after so many plans in vain.
var RestAfter = restAfter

// RestOf and RestText are how a rest is kept on its pod.
var (
	RestOf   = restOf
	RestText = restText
)

// Scene is what room may be made of.
type Scene struct {
	Snapshot  *state.Snapshot
	Pod       *state.PodView
	Gone      []types.UID
	Patient   bool
	Beside    []state.Preempting
	Otherwise func(node string, gone map[types.UID]bool) bool
	// Closed pods may not go; of those Under a budget so many as are Allowed may.
	Closed  []types.UID
	Under   map[types.UID]string
	Allowed map[string]int
}

func (s Scene) scene() scene {
	out := scene{snapshot: s.Snapshot, pod: s.Pod, leaving: uids{}.with(s.Gone...), patient: s.Patient}
	if s.Closed != nil || s.Under != nil {
		out.kept = s.leave()
	}
	if s.Otherwise != nil {
		out.otherwise = func(node string, gone uids) bool { return s.Otherwise(node, gone) }
	}
	return out.beside(s.Beside)
}

// leave is what budgets say that keep who is Closed, and let so many go of each Under one as are Allowed.
func (s Scene) leave() *pdb.Leave {
	const none = "none"
	budgets := []policyv1.PodDisruptionBudget{budgetFor(none, 0)}
	for name, pods := range s.Allowed {
		budgets = append(budgets, budgetFor(name, pods))
	}
	var pods []*corev1.Pod
	covered := func(uid types.UID, by string) {
		pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Labels: map[string]string{"budget": by}}})
	}
	for _, uid := range s.Closed {
		covered(uid, none)
	}
	for uid, name := range s.Under {
		covered(uid, name)
	}
	leave := pdb.NewIndex(budgets).Leave(pods...)
	return &leave
}

func budgetFor(name string, allowed int) policyv1.PodDisruptionBudget {
	b := policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}}
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"budget": name}}
	b.Status.DisruptionsAllowed = int32(allowed)
	return b
}

// Cheapest room for the pod.
func (s Scene) Cheapest() (Room, bool) { return s.scene().cheapest() }

// Possible tells whether the index knows of any.
func (s Scene) Possible() bool { return s.scene().possible() }

// Next step of a plan.
func (s Scene) Next(plan state.Preemption, now time.Time) PreemptionStep {
	return nextStep(s.scene(), plan, now)
}

// WaitsForCore tells whether room may be made for the pod.
func WaitsForCore(pod *state.PodView) bool { return waitsForCore(pod) }

// HeldBack tells whether the pod keeps its scheduling gate.
func HeldBack(pod *state.PodView, plans []state.Preempting, now time.Time) bool {
	return heldBack(pod, plans, now)
}

// Backoff is when to try a refused eviction again.
func Backoff(plan state.Preemption, now time.Time) time.Duration { return backoff(plan, now) }

// Enough tells whether a node has what a pod requests besides cores.
func Enough(allocatable corev1.ResourceList, pods []corev1.Pod, pod *corev1.Pod, gone map[types.UID]bool) bool {
	return enough(machine{allocatable: allocatable, pods: pods}, pod, gone)
}

// Waiting picks the pods to look at after a change.
func Waiting(s *state.Snapshot, change state.Change) (out []string) {
	for _, r := range waiting(s, change) {
		out = append(out, r.Name)
	}
	return out
}

// OnAction is what the queue wakes the loop by.
var OnAction = onAction

// Another is when to look again at what nothing wakes the loop for.
const Another = another

// NewPreemptions and NewYields are the loops.
var NewPreemptions = newPreemptions

// NewYields is the loop that lets pods go.
func NewYields(d Dependencies) *yields { return &yields{d} }

// OpenNodes is the part of the node loop that opens nodes on which no room is made any longer.
func OpenNodes(d Dependencies) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
		n, ok := d.Store.Snapshot().NodeView(r.Name)
		if !ok {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, (&nodes{Dependencies: d}).release(ctx, n)
	})
}
