package policy

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// Limits where a policy says none.
const (
	DefaultPerNode            = 2
	DefaultPerCluster         = 5
	DefaultPerWorkloadPerHour = 12
)

// Move is a migration that may begin, as limits see it.
type Move struct {
	// UID is the PodMigration's own, which is not counted; empty: it does not exist yet.
	UID       types.UID
	Namespace string
	// Policy that selects the pod, and Workload, the UID of the pod's controller; empty for none.
	Policy   string
	Workload types.UID
	// Source and Target are nodes; Target is empty while it is not known.
	Source, Target string
	Trigger        v1alpha1.MigrationTrigger
}

// Usage is what other migrations take of each limit.
type Usage struct {
	// Away from the source and to the target, in the namespace, of the policy: under way now.
	Away, To, Namespace, Cluster int64
	// Workload is how many of the pods of its controller have begun to move within the hour.
	Workload int64
}

// UsageOf counts the migrations beside a move. What waits, in phase Pending, takes nothing, nor does what is kept; what is of an
// unknown controller counts for no workload.
func UsageOf(m Move, all []v1alpha1.PodMigration, now time.Time) (u Usage) {
	for i := range all {
		o := &all[i]
		if m.UID != "" && o.UID == m.UID || o.Spec.DryRun {
			continue
		}
		u.countWorkload(m, o, now)
		if underWay(o) {
			u.count(m, o)
		}
	}
	return u
}

// underWay tells whether something moves. Where a state is kept for a pod that cannot be made yet, nothing does: its source was evicted, and may be on a dead
// node, and its target has all that comes before that pod.
func underWay(o *v1alpha1.PodMigration) bool {
	if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionMigrationState); c != nil && c.Reason == v1alpha1.ReasonStateKept {
		return false
	}
	return o.Status.Phase != "" && o.Status.Phase != v1alpha1.MigrationPending && !o.Status.Phase.Over()
}

func (u *Usage) count(m Move, o *v1alpha1.PodMigration) {
	source, target := ptr.Deref(o.Status.Source, v1alpha1.MigrationEnd{}), ptr.Deref(o.Status.Target, v1alpha1.MigrationEnd{})
	for _, c := range []struct {
		into *int64
		same bool
	}{
		{&u.Away, m.Source != "" && source.Node == m.Source},
		{&u.To, m.Target != "" && target.Node == m.Target},
		{&u.Namespace, o.Namespace == m.Namespace},
		{&u.Cluster, m.Policy != "" && ptr.Deref(o.Status.Decision, v1alpha1.MigrationDecision{}).Policy == m.Policy},
	} {
		if c.same {
			*c.into++
		}
	}
}

// countWorkload counts those that have begun within the hour, whatever came of them.
func (u *Usage) countWorkload(m Move, o *v1alpha1.PodMigration, now time.Time) {
	if m.Workload == "" || o.Status.Owner == nil || o.Status.Owner.UID != m.Workload || o.Status.StartTime == nil {
		return
	}
	if now.Sub(o.Status.StartTime.Time) < time.Hour {
		u.Workload++
	}
}

// limit is one of them, with what is used of it.
type limit struct {
	name, budget string
	used         int64
	most         *int64
}

func limitsOf(l *v1alpha1.MigrationLimits, u Usage) []limit {
	if l == nil {
		l = &v1alpha1.MigrationLimits{}
	}
	number := func(given *int32, otherwise *int64) *int64 {
		if given != nil {
			return ptr.To(int64(*given))
		}
		return otherwise
	}
	perNode := number(l.PerNode, ptr.To[int64](DefaultPerNode))
	return []limit{
		{"perNode", BudgetSourceNode, u.Away, perNode},
		{"perNode", BudgetTargetNode, u.To, perNode},
		{"perNamespace", BudgetNamespace, u.Namespace, number(l.PerNamespace, nil)},
		{"perCluster", BudgetCluster, u.Cluster, number(l.PerCluster, ptr.To[int64](DefaultPerCluster))},
		{"perWorkloadPerHour", BudgetWorkloadHour, u.Workload, number(l.PerWorkloadPerHour, ptr.To[int64](DefaultPerWorkloadPerHour))},
	}
}

// Limited is why a move must wait; empty: it need not. Limits are the policy's, or nil. Protective moves are not bound by
// how often a workload was moved within the hour.
func Limited(l *v1alpha1.MigrationLimits, u Usage, m Move) string {
	where := map[string]string{
		BudgetSourceNode: "away from node " + m.Source, BudgetTargetNode: "to node " + m.Target, BudgetNamespace: "in namespace " + m.Namespace,
		BudgetCluster: "of pods of MigrationPolicy " + m.Policy, BudgetWorkloadHour: "of the workload within the last hour",
	}
	for _, x := range limitsOf(l, u) {
		if x.most == nil || x.used < *x.most || x.budget == BudgetWorkloadHour && m.Trigger.Protective() {
			continue
		}
		return fmt.Sprintf("limit %s is reached: %d of %d migrations %s", x.name, x.used, *x.most, where[x.budget])
	}
	return ""
}

// Budget is what is left of each limit, for Question.Budget. What has no limit is not in it.
func Budget(l *v1alpha1.MigrationLimits, u Usage) map[string]int64 {
	out := map[string]int64{}
	for _, x := range limitsOf(l, u) {
		if x.most != nil {
			out[x.budget] = max(0, *x.most-x.used)
		}
	}
	return out
}
