package migration

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/policy"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// valid is for how long a decision of policy holds before a migration begins. One that has waited longer for its turn is asked about again.
const valid = 10 * time.Second

// denied is why policy does not allow, or no longer, what is about to begin; empty: it does.
func (m *migrate) denied(ctx context.Context, task orchestration.Task, pod *corev1.Pod) (string, error) {
	if _, begun := task.Progress[state.ProgressReserved]; begun {
		return "", nil
	}
	if !strings.HasPrefix(task.Object.Spec.Cause, causePrefix) {
		return m.deniedFirst(ctx, task, pod)
	}
	o, key := &v1alpha1.PodMigration{}, types.NamespacedName{Namespace: pod.Namespace, Name: task.Progress[progressMigration]}
	if key.Name == "" {
		return "", nil
	}
	if err := m.Client.Get(ctx, key, o); err != nil {
		return "", fmt.Errorf("reading PodMigration %s: %w", key, err)
	}
	admitted := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionMigrationAdmitted)
	if admitted == nil || o.Status.Decision == nil || m.Clock.Now().Sub(admitted.LastTransitionTime.Time) < valid {
		return "", nil
	}
	q, err := m.question(ctx, o, pod, o.Spec.Trigger)
	if err != nil {
		return "", err
	}
	d, err := m.judged(ctx, q, task.Object.Spec.TargetNode)
	if err != nil || d.Allowed {
		return "", err
	}
	return "policy does not allow it any longer: " + d.Reason, nil
}

// deniedFirst handles an action that existed before its PodMigration, and that no policy has judged. It waits for the limits of the
// policy. The decision is on record.
func (m *migrate) deniedFirst(ctx context.Context, task orchestration.Task, pod *corev1.Pod) (string, error) {
	target := task.Object.Spec.TargetNode
	q, err := m.question(ctx, &v1alpha1.PodMigration{}, pod, triggerOf(task.Object))
	if err != nil {
		return "", err
	}
	if why := policy.Limited(limits(q), policy.UsageOf(moveOf(q, target), q.others, m.Clock.Now()), moveOf(q, target)); why != "" {
		return "", waiting("waits: " + why)
	}
	d, err := m.judged(ctx, q, target)
	if err != nil {
		return "", err
	}
	if d.Allowed {
		text, err := json.Marshal(d)
		if _, told := task.Progress[progressDecision]; !told && err == nil {
			task.Progress[progressDecision] = string(text)
		}
		return "", err
	}
	why := "policy does not allow it: " + d.Reason
	return why, m.enter(ctx, task, v1alpha1.MigrationPending, func(s *v1alpha1.PodMigrationStatus) {
		s.Decision = &d
		setCondition(s, v1alpha1.ConditionMigrationAdmitted, metav1.ConditionFalse, ReasonPolicyDenied, why, m.Clock.Now())
	})
}

// decidedOn is what policy said to an action about which it was asked before anything was done; nil: it was not.
func decidedOn(task orchestration.Task) *v1alpha1.MigrationDecision {
	d := &v1alpha1.MigrationDecision{}
	if json.Unmarshal([]byte(task.Progress[progressDecision]), d) != nil {
		return nil
	}
	return d
}

// question is what is to be asked about a pod that is about to go.
func (m *migrate) question(ctx context.Context, o *v1alpha1.PodMigration, pod *corev1.Pod, trigger v1alpha1.MigrationTrigger) (question, error) {
	view, known := m.Store.Snapshot().Pod(pod.UID)
	if !known {
		return question{}, waiting("waits until the pod is seen")
	}
	rule, err := m.Judge.For(ctx, pod)
	if err != nil {
		return question{}, err
	}
	list := &v1alpha1.PodMigrationList{}
	if err := m.Client.List(ctx, list); err != nil {
		return question{}, fmt.Errorf("listing PodMigrations: %w", err)
	}
	return question{object: o, pod: pod, view: view, policy: rule, trigger: trigger, others: list.Items}, nil
}
