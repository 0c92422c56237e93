package disruption_test

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"
	karpdisruption "sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/node/health"
	karpstate "sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	karpentertest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/disruption"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// reboots is a method that does to the first node what repair has decided on, as Karpenter's does: the reboot has begun when its command is there.
type reboots struct {
	karpdisruption.Method
	rebooted, replaced []string
}

func (r *reboots) Reason() karpv1.DisruptionReason { return karpv1.DisruptionReasonUnhealthy }

func (*reboots) ConsolidationType() string { return "" }

func (r *reboots) ShouldDisrupt(context.Context, *karpdisruption.Candidate) bool { return true }

func (r *reboots) ComputeCommands(_ context.Context, _ map[string]int, candidates ...*karpdisruption.Candidate) ([]karpdisruption.Command, error) {
	c := candidates[0]
	if c.RepairPolicyResult.Action == karpcloud.RebootNode {
		r.rebooted = append(r.rebooted, c.Name())
		return []karpdisruption.Command{{Candidates: candidates[:1], Reboot: true}}, nil
	}
	r.replaced = append(r.replaced, c.Name())
	return nil, nil
}

// Whether a node may be rebooted is decided before the reboot begins: one whose containers have a core elsewhere is, and no refusal is told of it; one whose
// containers have none is replaced, which opens a node first; one that an action has in hand is left alone.
func TestRebootsAreJudgedBeforeTheyBegin(t *testing.T) {
	for name, c := range map[string]struct {
		room               bool
		action             bool
		rebooted, replaced int
		says               string
	}{
		"a core elsewhere": {room: true, rebooted: 1},
		"none":             {replaced: 1, says: "it is not rebooted, but replaced"},
		"in hand":          {room: true, action: true, says: "migrate-1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, statetest.Cores(1)...)
			w.node("a", "edge", statetest.Cores(1)...)
			w.pod("pod-a", "a", 60)
			if c.room {
				w.node("b", "edge", statetest.Cores(1)...)
			}
			if c.action {
				w.actions["migrate-1"] = &v1alpha1.RTAction{ObjectMeta: metav1.ObjectMeta{Name: "migrate-1"}, Spec: v1alpha1.RTActionSpec{Kind: "Migrate", Node: "b", TargetNode: "a"}}
				w.actions["migrate-1"].Status.Phase = "Running"
			}
			candidate := w.candidate("a")
			candidate.RepairPolicyResult.Action = karpcloud.RebootNode
			repair := &reboots{}
			method := disruption.NewFiltered(w.dependencies, repair, repair)
			commands, err := method.ComputeCommands(w.ctx, nil, candidate)
			w.must(err)
			if len(repair.rebooted) != c.rebooted || len(repair.replaced) != c.replaced || len(commands) != c.rebooted {
				t.Errorf("rebooted %v, replaced %v, %d commands", repair.rebooted, repair.replaced, len(commands))
			}
			if c.says == "" && w.said("NoCoreElsewhere") || c.says != "" && !w.said(c.says) {
				t.Errorf("it is told %q", w.messages())
			}
		})
	}
}

// What a method remembers of nodes is kept once. Consolidation remembers only that it has looked at everything.
func TestNoMethodRemembersNodesTwice(t *testing.T) {
	w := begin(t, statetest.Cores(1)...)
	ctx := options.ToContext(w.ctx, karpentertest.Options(karpentertest.OptionsFields{FeatureGates: karpentertest.FeatureGates{NodeRepair: ptr.To(true)}}))
	matcher, err := health.NewRepairPolicyMatcher(ctx, w.cloud)
	w.must(err)
	w.dependencies.Cluster = karpstate.NewCluster(w.clock, w.client, w.cloud, karpstate.WithRepairPolicyMatcher(matcher))
	repair := false
	for _, instances := range disruption.Instances(ctx, w.dependencies) {
		once := instances[0] == instances[1]
		repair = repair || instances[0].Reason() == karpv1.DisruptionReasonUnhealthy && once
		if consolidates := instances[0].ConsolidationType() != ""; once == consolidates {
			t.Errorf("%T: one instance: %t", instances[0], once)
		}
	}
	if !repair {
		t.Error("repair is not among them, or has two instances")
	}
}
