package migration

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// drive has the queue do what was decided, and tells what becomes of it.
func (r *Reconciler) drive(ctx context.Context, o *v1alpha1.PodMigration) (time.Duration, error) {
	list, err := r.Actions.ForCause(causePrefix + string(o.UID))
	if err != nil {
		return 0, err
	}
	why, action := unwanted(o), latest(list, o)
	if action == nil && adrift(o) { // what was tried is forgotten
		return r.admit(ctx, o)
	}
	if action == nil && why != "" && !touched(o) {
		return 0, r.aborted(ctx, o, ReasonUnwanted, why+", before anything was done")
	}
	if action == nil {
		if lost := o.Status.Phase; lost != "" && lost != v1alpha1.MigrationPending {
			if kept, err := r.retainsState(ctx, o, o.Status.Action, rules.Failed); kept || err != nil {
				return again, err
			}
			return 0, r.vanished(ctx, o, fmt.Sprintf("its action is gone; it was %s, and nobody knows what became of it", lost))
		}
		if _, err := r.Actions.Submit(ctx, r.request(ctx, o)); err != nil {
			return 0, err
		}
		return again, nil
	}
	return r.watch(ctx, o, action, why)
}

// latest is the action that does what was decided last; nil: it was not asked for yet. Once it has begun the pod in the source's place may
// have come to another node than was decided.
func latest(list []*v1alpha1.RTAction, o *v1alpha1.PodMigration) *v1alpha1.RTAction {
	waits := o.Status.Phase == "" || o.Status.Phase == v1alpha1.MigrationPending
	for _, action := range slices.Backward(list) {
		if !waits || o.Status.Target == nil || action.Spec.TargetNode == o.Status.Target.Node {
			return action
		}
	}
	return nil
}

// accompany does so for the record of an action that was there first.
func (r *Reconciler) accompany(ctx context.Context, o *v1alpha1.PodMigration) (time.Duration, error) {
	name := o.Labels[v1alpha1.LabelMigrationAction]
	list, err := r.Actions.ForCause(o.Annotations[v1alpha1.AnnotationMigrationCause])
	if err != nil {
		return 0, err
	}
	for _, action := range list {
		if action.Name == name && recordOf(o, action) {
			return r.watch(ctx, o, action, unwanted(o))
		}
	}
	if kept, err := r.retainsState(ctx, o, name, rules.Failed); kept || err != nil {
		return again, err
	}
	return 0, r.vanished(ctx, o, fmt.Sprintf("action %s is gone, and nobody knows what became of it", name))
}

// recordOf tells whether a PodMigration can be the record of an action. Any user could write its label, and would withdraw an action of
// another by it.
func recordOf(o *v1alpha1.PodMigration, action *v1alpha1.RTAction) bool {
	pods := action.Spec.Pods
	return action.Spec.Kind == "Migrate" && len(pods) == 1 && pods[0].Namespace == o.Namespace && o.Name == action.Name
}

// watch withdraws an action that is no longer wanted, and reports how far any other one is.
func (r *Reconciler) watch(ctx context.Context, o *v1alpha1.PodMigration, action *v1alpha1.RTAction, why string) (time.Duration, error) {
	phase := rules.Phase(cmp.Or(action.Status.Phase, "Waiting"))
	if phase.Over() {
		return r.ended(ctx, o, action, phase)
	}
	if why != "" {
		why = "It is not wanted any longer: " + why
	}
	message := action.Status.Message
	if phase == rules.Waiting {
		r.remind(ctx, o)
		if t, ok := r.Actions.Get(action.Name); ok && t.WaitingFor != "" {
			message = fmt.Sprintf("waits for its turn: %s: %s", t.WaitingFor, t.Message)
		}
		if why == "" && r.left(o) <= 0 {
			why = r.waited(o, message)
		}
	}
	if why != "" && !action.Status.Unwanted {
		if err := r.Actions.Withdraw(ctx, action.Name, why); err != nil {
			return 0, err
		}
	}
	at := o.Status.PhaseTime // what passes within seconds is not worth a write
	if message == "" || phase != rules.Waiting && at != nil && r.Clock.Now().Sub(at.Time) < telling {
		return again, nil
	}
	return again, r.update(ctx, o, func(s *v1alpha1.PodMigrationStatus) {
		s.Action, s.Message = action.Name, record.Short(message, 4096)
	})
}

// ended reports the outcome, once the state is no longer kept.
func (r *Reconciler) ended(ctx context.Context, o *v1alpha1.PodMigration, action *v1alpha1.RTAction, phase rules.Phase) (time.Duration, error) {
	if kept, err := r.retainsState(ctx, o, action.Name, phase); kept || err != nil {
		return again, err
	}
	return r.over(ctx, o, action)
}

func phaseOf(action *v1alpha1.RTAction) rules.Phase { return rules.Phase(action.Status.Phase) }

// conclude tells what became of it.
func (r *Reconciler) conclude(ctx context.Context, o *v1alpha1.PodMigration, action *v1alpha1.RTAction) error {
	phase, message := outcome(phaseOf(action), action.Status.Unwanted, action.Status.Progress), action.Status.Message
	if phaseOf(action) == rules.Withdrawn && touched(o) { // which is said of those that have not begun, else by force
		phase, message = v1alpha1.MigrationFailed, fmt.Sprintf("%s while it was %s; what can be undone is undone now", message, o.Status.Phase)
	}
	unsaved, err := r.unsaved(ctx, o, action)
	if err != nil {
		return err
	}
	if err := r.unrestrain(ctx, o, action.Name); err != nil { // whatever owns the pod by now: its owner may have released it
		return err
	}
	if unsaved != "" && !strings.Contains(message, lostMemory) {
		message += "; " + lostMemory + unsaved
	}
	return r.end(ctx, o, phase, reasonOf(phase), message, func(s *v1alpha1.PodMigrationStatus) {
		s.Action = action.Name
		if phase == v1alpha1.MigrationRefused {
			setCondition(s, v1alpha1.ConditionMigrationAdmitted, metav1.ConditionFalse, ReasonQueueRefused, action.Status.Message, r.Clock.Now())
		}
		concludeState(s, phase, action.Status.Progress, unsaved, r.Clock.Now())
		if down, err := time.ParseDuration(action.Status.Progress[progressDown]); err == nil {
			ms := down.Milliseconds()
			s.UnavailableMilliseconds = &ms
		}
		if evidence := action.Status.Progress[progressEvidence]; evidence != "" && phase != v1alpha1.MigrationFailed {
			setCondition(s, v1alpha1.ConditionMigrationVerified, metav1.ConditionTrue, "Steady", evidence, r.Clock.Now())
		}
	})
}

// concludeState says in condition State what became of the pod's state.
func concludeState(s *v1alpha1.PodMigrationStatus, phase v1alpha1.MigrationPhase, progress map[string]string, unsaved string, now time.Time) {
	undone := phase == v1alpha1.MigrationRolledBack || phase == v1alpha1.MigrationAborted
	if lost := progress[progressLost]; lost != "" {
		setCondition(s, v1alpha1.ConditionMigrationState, metav1.ConditionFalse, ReasonRestoreFailed, lost, now)
	} else if lost := cmp.Or(progress[progressForfeited], unsaved); lost != "" {
		setCondition(s, v1alpha1.ConditionMigrationState, metav1.ConditionFalse, ReasonStateLost, lostMemory+lost, now)
	} else if undone && meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionMigrationState) {
		setCondition(s, v1alpha1.ConditionMigrationState, metav1.ConditionTrue, ReasonStateStayed, "the pod has its state where it was", now)
	}
}

// touched tells whether anything was done, by the last phase that is on record.
func touched(o *v1alpha1.PodMigration) bool {
	switch o.Status.Phase {
	case "", v1alpha1.MigrationPending, v1alpha1.MigrationReserving:
		return false
	}
	return !o.Status.Phase.Over()
}

// reasonOf is the reason of condition Done.
func reasonOf(phase v1alpha1.MigrationPhase) string { return string(phase) }

// aborted ends a migration that is no longer wanted, and of which nothing is under way.
func (r *Reconciler) aborted(ctx context.Context, o *v1alpha1.PodMigration, reason, message string) error {
	return r.end(ctx, o, v1alpha1.MigrationAborted, reason, message, func(*v1alpha1.PodMigrationStatus) {})
}

// refuse ends a migration that never begins.
func (r *Reconciler) refuse(ctx context.Context, o *v1alpha1.PodMigration, d *v1alpha1.MigrationDecision, no *refusal) error {
	pod := &corev1.Pod{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.PodName}, pod)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading pod %s/%s: %w", o.Namespace, o.Spec.PodName, err)
	}
	found := err == nil && (o.Spec.PodUID == "" || o.Spec.PodUID == pod.UID)
	return r.end(ctx, o, v1alpha1.MigrationRefused, no.reason, no.message, func(s *v1alpha1.PodMigrationStatus) {
		if found && s.Source == nil { // from which node it does not go is told in time series
			s.Source = sourceOf(pod)
		}
		s.Decision = d
		setCondition(s, v1alpha1.ConditionMigrationAdmitted, metav1.ConditionFalse, no.reason, no.message, r.Clock.Now())
	})
}

func (r *Reconciler) end(ctx context.Context, o *v1alpha1.PodMigration, phase v1alpha1.MigrationPhase, reason, message string, more func(*v1alpha1.PodMigrationStatus)) error {
	kept, err := r.retainedStateCondition(ctx, o)
	if err != nil {
		return err
	}
	if kept != nil {
		message += "; " + kept.Message
	}
	err = r.update(ctx, o, func(s *v1alpha1.PodMigrationStatus) {
		more(s)
		if kept != nil {
			setCondition(s, kept.Type, kept.Status, kept.Reason, kept.Message, r.Clock.Now())
		}
		s.Message = record.Short(message, 4096)
		advance(s, phase, metav1.NewMicroTime(r.Clock.Now()))
		setCondition(s, v1alpha1.ConditionMigrationDone, metav1.ConditionTrue, reason, s.Message, r.Clock.Now())
	})
	if err != nil {
		return err
	}
	r.forget(o.UID)
	metrics.Migrations.WithLabelValues(counted(o, phase), string(phase)).Inc()
	if phase != v1alpha1.MigrationSucceeded { // which its status says, and Migrated on the pod that runs
		r.Recorder.Publish(events.MigrationOver(o, string(o.UID), string(phase), message))
	}
	return nil
}

// counted is by which strategy a migration counts that is over.
func counted(o *v1alpha1.PodMigration, phase v1alpha1.MigrationPhase) string {
	if o.Status.Strategy == "" || phase == v1alpha1.MigrationRefused {
		return metrics.StrategyNone
	}
	return strings.ToLower(string(o.Status.Strategy))
}

// note tells what a migration waits for before it is admitted.
func (r *Reconciler) note(ctx context.Context, o *v1alpha1.PodMigration, waits *refusal) error {
	return r.update(ctx, o, func(s *v1alpha1.PodMigrationStatus) {
		s.Phase, s.Message = v1alpha1.MigrationPending, waits.message
		setCondition(s, v1alpha1.ConditionMigrationAdmitted, metav1.ConditionFalse, waits.reason, waits.message, r.Clock.Now())
	})
}

// noteDelay tells what keeps a migration from being decided on, once that lasts: most often it is over at once.
func (r *Reconciler) noteDelay(ctx context.Context, o *v1alpha1.PodMigration, reason, message string) error {
	decided := o.Status.Strategy != "" || o.Status.Phase.Over() || o.Labels[v1alpha1.LabelMigrationAction] != ""
	if decided || r.Clock.Now().Sub(o.CreationTimestamp.Time) < telling {
		return nil
	}
	return r.note(ctx, o, &refusal{reason, message})
}

// update writes what has changed, and nothing where nothing has. The object is then as it is stored.
func (r *Reconciler) update(ctx context.Context, o *v1alpha1.PodMigration, change func(*v1alpha1.PodMigrationStatus)) error {
	after := o.DeepCopy()
	change(&after.Status)
	if equality.Semantic.DeepEqual(o.Status, after.Status) {
		return nil
	}
	if err := r.Client.Status().Patch(ctx, after, client.MergeFromWithOptions(o, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("writing the status of PodMigration %s/%s: %w", o.Namespace, o.Name, err)
	}
	*o = *after
	return nil
}

// admitted puts a decision on record.
func (r *Reconciler) admitted(s *v1alpha1.PodMigrationStatus, q question, a answer, reason string) {
	s.Phase = v1alpha1.MigrationPending
	s.Strategy, s.Decision, s.Owner = a.strategy, a.decision, ownerOf(q.pod)
	s.Source = sourceOf(q.pod)
	s.Target = &v1alpha1.MigrationEnd{Node: a.target}
	now := r.Clock.Now()
	setCondition(s, v1alpha1.ConditionMigrationAdmitted, metav1.ConditionTrue, reason, would(q, a), now)
	tellState(s, a.way, now)
}

// tellState says whether the pod's state comes along, where it was to.
func tellState(s *v1alpha1.PodMigrationStatus, w way, now time.Time) {
	switch {
	case w.stateless != "":
		setCondition(s, v1alpha1.ConditionMigrationState, metav1.ConditionFalse, ReasonStateImpossible, w.stateless, now)
	case w.strategy == v1alpha1.StrategyCheckpoint:
		setCondition(s, v1alpha1.ConditionMigrationState, metav1.ConditionTrue, "Checkpoint", "its state comes along", now)
	default:
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionMigrationState)
	}
}

// would say what was decided.
func would(q question, a answer) string {
	to := "to where the scheduler puts it"
	if a.target != "" {
		to = "to node " + a.target
	}
	text := fmt.Sprintf("pod %s goes from node %s %s by strategy %s", q.pod.Name, q.pod.Spec.NodeName, to, a.strategy)
	if a.stateless != "" {
		text += ", and begins anew: " + a.stateless
	}
	return text
}

// request asks the queue for it, the same each time.
func (r *Reconciler) request(ctx context.Context, o *v1alpha1.PodMigration) orchestration.Request {
	source := o.Status.Source
	out := orchestration.Request{
		Kind: rules.Migrate, Reason: string(cmp.Or(o.Spec.Trigger, v1alpha1.TriggerManual)), Message: record.Short(o.Spec.Reason, 1024),
		Beside: o.Status.Strategy == v1alpha1.StrategySurge,
		Cause:  causePrefix + string(o.UID), Node: source.Node, TargetNode: o.Status.Target.Node, Timeout: r.allowed(ctx, o),
		Pods:        []v1alpha1.ActionPod{{Namespace: o.Namespace, Name: source.PodName, UID: source.PodUID}},
		Beneficiary: v1alpha1.ActionBeneficiary{Kind: "Pod", Namespace: o.Namespace, Name: source.PodName, UID: source.PodUID, Criticality: "Low"},
	}
	if view, ok := r.Store.Snapshot().Pod(source.PodUID); ok {
		out.Beneficiary.Criticality = criticality(view)
	}
	return out
}

// criticality is the highest of the pod's governed containers.
func criticality(view *state.PodView) string {
	most := rt.Low
	for _, g := range view.Governed {
		if g.Err == nil {
			most = max(most, g.Server.Criticality)
		}
	}
	return most.String()
}

// governor is the McKube of the pod's most critical container; nil for none.
func governor(view *state.PodView) *mcv1.McKube {
	var out *mcv1.McKube
	most := rt.Low
	for _, g := range view.Governed {
		if g.Err == nil && (out == nil || g.Server.Criticality > most) {
			out, most = g.McKube, g.Server.Criticality
		}
	}
	return out
}
