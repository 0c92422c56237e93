package disruption_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpdisruption "sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	karptest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/disruption"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// finds is a method that finds the same command whatever it is asked about.
type finds struct {
	karpdisruption.Method
	command karpdisruption.Command
}

func (finds) Reason() karpv1.DisruptionReason { return karpv1.DisruptionReasonDrifted }

func (finds) ConsolidationType() string { return "" }

func (f finds) ShouldDisrupt(context.Context, *karpdisruption.Candidate) bool { return true }

func (f finds) ComputeCommands(context.Context, map[string]int, ...*karpdisruption.Candidate) ([]karpdisruption.Command, error) {
	return []karpdisruption.Command{f.command}, nil
}

// judged is what is left of a command that a method has found.
func (w *world) judged(c karpdisruption.Command) ([]karpdisruption.Command, karpdisruption.Method) {
	w.Helper()
	method := disruption.NewFiltered(w.dependencies, finds{command: c}, finds{command: c})
	out, err := method.ComputeCommands(w.ctx, nil, c.Candidates...)
	w.must(err)
	return out, method
}

// Of nodes that are only closed, the ones that nothing speaks for stay; the others rest.
func TestACommandIsDoneInPart(t *testing.T) {
	w := begin(t, statetest.Cores(1)...)
	for name, percent := range map[string]int64{"a": 60, "b": 20, "c": 50} {
		w.node(name, "edge", statetest.Cores(1)...)
		w.pod("pod-"+name, name, percent)
	}
	a, b := w.candidate("a"), w.candidate("b")
	commands, method := w.judged(karpdisruption.Command{Candidates: []*karpdisruption.Candidate{a, b}})
	if len(commands) != 1 || len(commands[0].Candidates) != 1 || commands[0].Candidates[0] != b {
		t.Fatalf("%d commands are left, %v, want one that closes b: c takes 20 %%, not 60", len(commands), commands)
	}
	if method.ShouldDisrupt(w.ctx, a) || !method.ShouldDisrupt(w.ctx, b) {
		t.Error("of the two, a was refused and should rest, and b should not")
	}
	w.clock.Step(5*time.Minute + time.Second)
	if !method.ShouldDisrupt(w.ctx, a) {
		t.Error("a rests for ever")
	}
}

// repairs is a method that closes nodes which are broken.
type repairs struct{ finds }

func (repairs) Reason() karpv1.DisruptionReason { return karpv1.DisruptionReasonUnhealthy }

// repaired is the method that would close a node of which the kubelet says that.
func (w *world) repaired(name string, ready corev1.ConditionStatus) (karpdisruption.Method, *karpdisruption.Candidate) {
	w.Helper()
	node := w.live(name)
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			node.Status.Conditions[i].Status = ready
		}
	}
	w.must(w.store.Update(node))
	candidate := w.candidate(name)
	found := repairs{finds{command: karpdisruption.Command{Candidates: []*karpdisruption.Candidate{candidate}}}}
	return disruption.NewFiltered(w.dependencies, found, found), candidate
}

// A migration to a node that has died waits for what is on it, which goes with the machine; so the repair does not wait for the migration.
func TestADeadNodeIsRepairedThoughAnActionHasIt(t *testing.T) {
	for name, c := range map[string]struct {
		ready corev1.ConditionStatus
		want  bool
	}{"dead": {corev1.ConditionUnknown, true}, "alive": {corev1.ConditionTrue, false}} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, statetest.Cores(1)...)
			w.node("a", "edge", statetest.Cores(1)...)
			w.actions["migrate-1"] = &v1alpha1.RTAction{ObjectMeta: metav1.ObjectMeta{Name: "migrate-1"}, Spec: v1alpha1.RTActionSpec{Kind: "Migrate", Node: "b", TargetNode: "a"}}
			w.actions["migrate-1"].Status.Phase = "Running"
			method, candidate := w.repaired("a", c.ready)
			if got := method.ShouldDisrupt(w.ctx, candidate); got != c.want {
				t.Errorf("a candidate: %t", got)
			}
			commands, err := method.ComputeCommands(w.ctx, nil, candidate)
			w.must(err)
			if (len(commands) == 1) != c.want {
				t.Errorf("%d commands", len(commands))
			}
		})
	}
}

// Nor does it wait for cores that what was on it would find elsewhere: there may never be any, and it has none where it is. A reboot has been
// asked for by then in any case.
func TestADeadNodeIsRepairedThoughItsContainersHaveNoCoreElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		ready corev1.ConditionStatus
		want  bool
	}{"dead": {corev1.ConditionUnknown, true}, "alive": {corev1.ConditionTrue, false}} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, statetest.Cores(1)...)
			w.node("a", "edge", statetest.Cores(1)...)
			w.pod("pod-a", "a", 60)
			method, candidate := w.repaired("a", c.ready)
			commands, err := method.ComputeCommands(w.ctx, nil, candidate)
			w.must(err)
			if (len(commands) == 1) != c.want || w.said("NoCoreElsewhere") == c.want {
				t.Errorf("%d commands, and it is told %q", len(commands), w.messages())
			}
		})
	}
}

// A replacement is for exactly the nodes that it replaces, so such a command is done whole or not at all.
func TestACommandWithReplacementIsNotDoneInPart(t *testing.T) {
	w := begin(t, statetest.Cores(1)...)
	for name, percent := range map[string]int64{"a": 60, "b": 20, "c": 50} {
		w.node(name, "edge", statetest.Cores(1)...)
		w.pod("pod-"+name, name, percent)
	}
	replacement := &karpdisruption.Replacement{NodeClaim: &scheduling.NodeClaim{NodeClaimTemplate: *scheduling.NewNodeClaimTemplate(w.pool)}}
	commands, _ := w.judged(karpdisruption.Command{
		Candidates: []*karpdisruption.Candidate{w.candidate("a"), w.candidate("b")}, Replacements: []*karpdisruption.Replacement{replacement},
	})
	if len(commands) != 0 {
		t.Errorf("%v is left, and none of its pods is planned onto the replacement", commands)
	}
}

// What replaces a node of a static NodePool is any machine of the pool: each must do. The place that was reserved
// for one that does not come is given back.
func TestReplacementsOfStaticNodePools(t *testing.T) {
	w := begin(t, statetest.Cores(1)...)
	w.node("a", "edge", statetest.Cores(1)...)
	w.pod("pod-a", "a", 60)
	static := w.pool.DeepCopy()
	static.Spec.Replicas = ptr.To[int64](1)
	command := karpdisruption.Command{
		Candidates:   []*karpdisruption.Candidate{w.candidate("a")},
		Replacements: []*karpdisruption.Replacement{{NodeClaim: &scheduling.NodeClaim{NodeClaimTemplate: *scheduling.NewNodeClaimTemplate(static)}}},
	}
	if got := w.cluster.NodePoolState.ReserveNodeCount("general", 2, 1); got != 1 {
		t.Fatalf("%d places were reserved, want 1", got)
	}
	if commands, _ := w.judged(command); len(commands) != 0 {
		t.Error("the pod may end on a plain machine, which has no cores")
	}
	if got := w.cluster.NodePoolState.ReserveNodeCount("general", 2, 1); got != 1 {
		t.Error("the place for the replacement is still taken")
	}
	w.cloud.InstanceTypes = w.cloud.InstanceTypes[1:]
	if commands, _ := w.judged(command); len(commands) != 1 {
		t.Error("every machine of the pool has a core for the pod, and the command was refused")
	}
}

// empties is a method that closes empty nodes.
type empties struct{ finds }

func (empties) Reason() karpv1.DisruptionReason { return karpv1.DisruptionReasonEmpty }

// A node that has just come may be for a CapacityBuffer, whose pods Karpenter counts there in its next plan.
func TestANewNodeIsNotEmptyWhereThereMayBeBuffers(t *testing.T) {
	w := begin(t)
	node := w.node("a", "plain")
	method := disruption.NewFiltered(w.dependencies, empties{}, empties{})
	gate := func(on bool) context.Context {
		return options.ToContext(w.ctx, karptest.Options(karptest.OptionsFields{FeatureGates: karptest.FeatureGates{CapacityBuffer: &on}}))
	}
	candidate := w.candidate(node.Name)
	w.clock.SetTime(candidate.NodeClaim.StatusConditions().Get(karpv1.ConditionTypeInitialized).LastTransitionTime.Time)
	if method.ShouldDisrupt(gate(true), candidate) || !method.ShouldDisrupt(gate(false), candidate) {
		t.Error("it is closed where a buffer may be counted there yet, or kept where there are none")
	}
	if other := disruption.NewFiltered(w.dependencies, repairs{}, repairs{}); !other.ShouldDisrupt(gate(true), candidate) {
		t.Error("it is kept from a method that closes nodes which are not empty")
	}
	w.clock.Step(75 * time.Second)
	if !method.ShouldDisrupt(gate(true), candidate) {
		t.Error("it is kept for ever")
	}
}
