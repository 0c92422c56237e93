package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/policy"
)

// moving is a migration under way.
func moving(name string, options ...func(*v1alpha1.PodMigration)) v1alpha1.PodMigration {
	o := v1alpha1.PodMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Status: v1alpha1.PodMigrationStatus{
			Phase: v1alpha1.MigrationRestoring, Source: &v1alpha1.MigrationEnd{Node: "n1"}, Target: &v1alpha1.MigrationEnd{Node: "n2"},
			Owner: &v1alpha1.MigrationOwner{UID: "rs"}, Decision: &v1alpha1.MigrationDecision{Policy: "p"},
			StartTime: &metav1.MicroTime{Time: noon.Add(-time.Minute)},
		},
	}
	for _, change := range options {
		change(&o)
	}
	return o
}

var move = policy.Move{UID: "me", Namespace: "default", Policy: "p", Workload: "rs", Source: "n1", Target: "n2", Trigger: v1alpha1.TriggerCost}

func TestUsageIsOfWhatIsUnderWay(t *testing.T) {
	phase := func(p v1alpha1.MigrationPhase) func(*v1alpha1.PodMigration) {
		return func(o *v1alpha1.PodMigration) { o.Status.Phase = p }
	}
	all := []v1alpha1.PodMigration{
		moving("a"),
		moving("elsewhere", func(o *v1alpha1.PodMigration) {
			o.Namespace, o.Status.Source.Node, o.Status.Target.Node, o.Status.Owner.UID, o.Status.Decision.Policy = "x", "n2", "n1", "other", "q"
		}),
		moving("waits", phase(v1alpha1.MigrationPending), func(o *v1alpha1.PodMigration) { o.Status.StartTime = nil }),
		moving("done", phase(v1alpha1.MigrationSucceeded)),
		moving("long-done", phase(v1alpha1.MigrationSucceeded), func(o *v1alpha1.PodMigration) { o.Status.StartTime.Time = noon.Add(-time.Hour) }),
		moving("thought", func(o *v1alpha1.PodMigration) { o.Spec.DryRun = true }),
		moving("new", func(o *v1alpha1.PodMigration) { o.Status = v1alpha1.PodMigrationStatus{} }),
		moving("kept", func(o *v1alpha1.PodMigration) {
			o.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionMigrationState, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonStateKept}}
		}),
		moving("with-its-state", func(o *v1alpha1.PodMigration) {
			o.Namespace, o.Status.Source.Node, o.Status.Owner.UID, o.Status.Decision.Policy = "x", "n3", "other", "q"
			o.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionMigrationState, Status: metav1.ConditionTrue, Reason: "Checkpoint"}}
		}),
		moving("me"),
	}
	want := policy.Usage{Away: 1, To: 2, Namespace: 1, Cluster: 1, Workload: 3}
	if got := policy.UsageOf(move, all, noon); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestLimitsSayWhich(t *testing.T) {
	limits := &v1alpha1.MigrationLimits{PerNode: ptr.To[int32](3), PerNamespace: ptr.To[int32](4), PerCluster: ptr.To[int32](6), PerWorkloadPerHour: ptr.To[int32](2)}
	for want, u := range map[string]policy.Usage{
		"limit perNode is reached: 3 of 3 migrations away from node n1":                               {Away: 3},
		"limit perNode is reached: 5 of 3 migrations to node n2":                                      {To: 5},
		"limit perNamespace is reached: 4 of 4 migrations in namespace default":                       {Namespace: 4},
		"limit perCluster is reached: 6 of 6 migrations of pods of MigrationPolicy p":                 {Cluster: 6},
		"limit perWorkloadPerHour is reached: 2 of 2 migrations of the workload within the last hour": {Workload: 2},
		"": {Away: 2, To: 2, Namespace: 3, Cluster: 5, Workload: 1},
	} {
		if got := policy.Limited(limits, u, move); got != want {
			t.Errorf("%+v: %q, want %q", u, got, want)
		}
	}
	protective := move
	protective.Trigger = v1alpha1.TriggerRTPressure
	if got := policy.Limited(limits, policy.Usage{Workload: 9}, protective); got != "" {
		t.Errorf("a protective move waits: %s", got)
	}
	if got := policy.Limited(nil, policy.Usage{Away: policy.DefaultPerNode}, move); !strings.Contains(got, "perNode") {
		t.Errorf("without limits: %q", got)
	}
	if got := policy.Limited(nil, policy.Usage{Namespace: 1000}, move); got != "" {
		t.Errorf("a limit that nobody has set: %q", got)
	}
}

// Whatever is on the move: a move that need not wait leaves no limit overdrawn, and what is left of each is never negative.
func TestLimitsAreNeverOverdrawn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Int32Range(1, 4)
		limits := &v1alpha1.MigrationLimits{PerNode: ptr.To(number.Draw(t, "node")), PerNamespace: ptr.To(number.Draw(t, "namespace")), PerCluster: ptr.To(number.Draw(t, "cluster"))}
		node := rapid.SampledFrom([]string{"n1", "n2", "n3"})
		var all []v1alpha1.PodMigration
		for i := range rapid.IntRange(0, 20).Draw(t, "n") {
			m := policy.Move{UID: types.UID(fmt.Sprint(i)), Namespace: "default", Policy: "p", Source: node.Draw(t, "from"), Target: node.Draw(t, "to"), Trigger: v1alpha1.TriggerCost}
			u := policy.UsageOf(m, all, noon)
			for name, left := range policy.Budget(limits, u) {
				if left < 0 {
					t.Fatalf("%d left of %s", left, name)
				}
			}
			if policy.Limited(limits, u, m) == "" {
				all = append(all, moving(fmt.Sprint(i), func(o *v1alpha1.PodMigration) { o.Status.Source.Node, o.Status.Target.Node = m.Source, m.Target }))
			}
		}
		away, to := map[string]int32{}, map[string]int32{}
		for _, o := range all {
			away[o.Status.Source.Node]++
			to[o.Status.Target.Node]++
		}
		for _, n := range []string{"n1", "n2", "n3"} {
			if away[n] > *limits.PerNode || to[n] > *limits.PerNode {
				t.Fatalf("node %s: %d away and %d to it, of %d", n, away[n], to[n], *limits.PerNode)
			}
		}
		if n := int32(len(all)); n > *limits.PerNamespace || n > *limits.PerCluster {
			t.Fatalf("%d under way, of %d and %d", n, *limits.PerNamespace, *limits.PerCluster)
		}
	})
}
