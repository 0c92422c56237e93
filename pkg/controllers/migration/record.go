package migration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// causePrefix begins the cause of an action that is for a PodMigration, whose UID follows.
const causePrefix = "migration/"

// errForgotten is the error of an action whose PodMigration no longer exists.
var errForgotten = errors.New("its PodMigration is gone")

// begin remembers the action's PodMigration, and by which strategy the pod goes. If an action was not created for a PodMigration, the
// controller creates one, for people to read. The action uses the strategy that such a PodMigration would use: it is chosen anew until
// something is done.
func (m *migrate) begin(ctx context.Context, task orchestration.Task) error {
	of, asked := strings.CutPrefix(task.Object.Spec.Cause, causePrefix)
	chosen := task.Progress[progressStrategy] != ""
	switch {
	case chosen && (asked || task.Undoing() || begun(task)):
		return nil
	case asked:
		return m.recall(ctx, task, types.UID(of))
	case task.Undoing():
		task.Progress[progressStrategy] = string(v1alpha1.StrategyRestart)
		return nil
	}
	if _, kept := task.Progress[progressMigration]; !kept {
		name, err := m.keep(ctx, task.Object)
		if err != nil {
			return err
		}
		task.Progress[progressMigration] = name
	}
	return m.chooseWay(ctx, task)
}

// begun tells whether anything may have been done.
func begun(task orchestration.Task) bool {
	for _, entry := range []string{state.ProgressReserved, progressBefore, progressTwin} {
		if _, ok := task.Progress[entry]; ok {
			return true
		}
	}
	return false
}

// recall remembers what was decided on a PodMigration.
func (m *migrate) recall(ctx context.Context, task orchestration.Task, of types.UID) error {
	o, err := m.asked(ctx, task.Object.Spec.Pods[0].Namespace, of)
	if err != nil {
		return err
	}
	task.Progress[progressMigration] = o.Name
	if stateless(o) {
		task.Progress[progressStateless] = "true"
	}
	strategy := cmp.Or(o.Status.Strategy, v1alpha1.StrategyRestart)
	if strategy == v1alpha1.StrategyRestart && o.Status.Owner == nil {
		strategy = strategyRemake
	}
	task.Progress[progressStrategy] = string(strategy)
	return nil
}

// asked finds the PodMigration that an action is for. That it is gone only the API server may say.
func (m *migrate) asked(ctx context.Context, namespace string, uid types.UID) (*v1alpha1.PodMigration, error) {
	for _, from := range []client.Reader{m.Client, m.API} {
		list := &v1alpha1.PodMigrationList{}
		if err := from.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("listing PodMigrations of namespace %s: %w", namespace, err)
		}
		if i := slices.IndexFunc(list.Items, func(o v1alpha1.PodMigration) bool { return o.UID == uid }); i >= 0 {
			return &list.Items[i], nil
		}
	}
	return nil, errForgotten
}

// keep creates the PodMigration of an action that existed first, and returns its name. The name is empty if another PodMigration has it.
func (m *migrate) keep(ctx context.Context, action *v1alpha1.RTAction) (string, error) {
	pod := action.Spec.Pods[0]
	o := &v1alpha1.PodMigration{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: action.Name,
			Labels:      map[string]string{v1alpha1.LabelMigrationAction: action.Name},
			Annotations: map[string]string{v1alpha1.AnnotationMigrationCause: action.Spec.Cause},
			Finalizers:  []string{v1alpha1.FinalizerMigration},
		},
		Spec: v1alpha1.PodMigrationSpec{
			PodName: pod.Name, PodUID: pod.UID, TargetNode: action.Spec.TargetNode, Trigger: triggerOf(action), Reason: record.Short(action.Spec.Message, 1024),
		},
	}
	err := m.Client.Create(ctx, o)
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return "", fmt.Errorf("keeping PodMigration %s/%s of action %s: %w", o.Namespace, o.Name, action.Name, err)
		}
		return o.Name, nil
	}
	if err := m.API.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		return "", fmt.Errorf("reading PodMigration %s/%s: %w", pod.Namespace, action.Name, err)
	}
	if o.Labels[v1alpha1.LabelMigrationAction] != action.Name {
		return "", nil
	}
	return o.Name, nil
}

// triggerOf is why the action was asked for: by hand, unless its reason is the name of a trigger.
func triggerOf(action *v1alpha1.RTAction) v1alpha1.MigrationTrigger {
	if t := v1alpha1.MigrationTrigger(action.Spec.Reason); t.Known() {
		return t
	}
	return v1alpha1.TriggerManual
}

// enter writes, before what the phase permits is done, that the migration has come to it. One that is over, or gone, stays so.
func (m *migrate) enter(ctx context.Context, task orchestration.Task, phase v1alpha1.MigrationPhase, change ...func(*v1alpha1.PodMigrationStatus)) error {
	name := task.Progress[progressMigration]
	if name == "" {
		return nil
	}
	key := types.NamespacedName{Namespace: task.Object.Spec.Pods[0].Namespace, Name: name}
	err := error(nil)
	for _, from := range []client.Reader{m.Client, m.API} { // what the cache shows may be old: then it is asked for once more
		o := &v1alpha1.PodMigration{}
		if err = from.Get(ctx, key, o); err == nil {
			err = m.write(ctx, o, phase, change)
		}
		if err == nil {
			return nil
		}
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("writing that PodMigration %s is %s: %w", key, phase, err)
}

// was tells whether the migration had come to a phase when it was last looked at.
func (m *migrate) was(ctx context.Context, task orchestration.Task, phase v1alpha1.MigrationPhase) bool {
	o := &v1alpha1.PodMigration{}
	key := types.NamespacedName{Namespace: task.Object.Spec.Pods[0].Namespace, Name: task.Progress[progressMigration]}
	return key.Name != "" && m.Client.Get(ctx, key, o) == nil && o.Status.Phase == phase
}

func (m *migrate) write(ctx context.Context, o *v1alpha1.PodMigration, phase v1alpha1.MigrationPhase, change []func(*v1alpha1.PodMigrationStatus)) error {
	after := o.DeepCopy()
	if o.Status.Phase.Over() {
		return nil
	}
	was := advance(&after.Status, phase, metav1.NewMicroTime(m.Clock.Now()))
	for _, f := range change {
		f(&after.Status)
	}
	if equality.Semantic.DeepEqual(o.Status, after.Status) {
		return nil
	}
	if err := m.Client.Status().Patch(ctx, after, client.MergeFromWithOptions(o, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	if began := o.Status.PhaseTime; began != nil && was != phase {
		metrics.MigrationPhases.WithLabelValues(string(was)).Observe(max(0, after.Status.PhaseTime.Sub(began.Time).Seconds()))
	}
	return nil
}

// advance has the status come into a phase, if it is in another one, which is returned.
func advance(s *v1alpha1.PodMigrationStatus, phase v1alpha1.MigrationPhase, now metav1.MicroTime) v1alpha1.MigrationPhase {
	was := cmp.Or(s.Phase, v1alpha1.MigrationPending)
	if s.Phase == phase {
		return was
	}
	s.Phase, s.PhaseTime, s.ProgressTime = phase, &now, &now
	if s.StartTime == nil && phase != v1alpha1.MigrationPending && !phase.Over() {
		s.StartTime = &now
	}
	if phase.Over() {
		s.CompletionTime = &now
	}
	return was
}

// describe is what everybody may read of a migration from its beginning.
func describe(task orchestration.Task, pod *corev1.Pod) func(*v1alpha1.PodMigrationStatus) {
	return func(s *v1alpha1.PodMigrationStatus) {
		s.Action = task.Object.Name
		s.Strategy = strategyOf(task)
		s.Source = sourceOf(pod)
		s.Owner = ownerOf(pod)
		if d := decidedOn(task); d != nil {
			s.Decision = d
		}
		if s.Target == nil {
			s.Target = &v1alpha1.MigrationEnd{Node: task.Object.Spec.TargetNode}
		}
	}
}

// from describes it by its source, as long as that is there.
func from(task orchestration.Task, source *corev1.Pod) func(*v1alpha1.PodMigrationStatus) {
	if source == nil {
		return func(*v1alpha1.PodMigrationStatus) {}
	}
	return describe(task, source)
}

// arriving says which pod is in the place of the source.
func arriving(pod *corev1.Pod) func(*v1alpha1.PodMigrationStatus) {
	return func(s *v1alpha1.PodMigrationStatus) {
		s.Target = &v1alpha1.MigrationEnd{PodName: pod.Name, PodUID: pod.UID, Node: pod.Spec.NodeName}
	}
}

// strategyOf is the strategy that people know.
func strategyOf(task orchestration.Task) v1alpha1.MigrationStrategy {
	s := v1alpha1.MigrationStrategy(task.Progress[progressStrategy])
	if s == strategyRemake {
		return v1alpha1.StrategyRestart
	}
	return cmp.Or(s, v1alpha1.StrategyRestart)
}

// ownerOf is the controller that makes the pod again; nil for none.
func ownerOf(pod *corev1.Pod) *v1alpha1.MigrationOwner {
	by := metav1.GetControllerOf(pod)
	if by == nil {
		return nil
	}
	return &v1alpha1.MigrationOwner{APIVersion: by.APIVersion, Kind: by.Kind, Name: by.Name, UID: by.UID}
}

// stateless tells whether the pod was to take its state along, and begins anew.
func stateless(o *v1alpha1.PodMigration) bool {
	return meta.IsStatusConditionPresentAndEqual(o.Status.Conditions, v1alpha1.ConditionMigrationState, metav1.ConditionFalse)
}

// sourceOf is what a record says of the pod that is to go.
func sourceOf(pod *corev1.Pod) *v1alpha1.MigrationEnd {
	return &v1alpha1.MigrationEnd{PodName: pod.Name, PodUID: pod.UID, Node: pod.Spec.NodeName, CompletionIndex: pod.Annotations[batchv1.JobCompletionIndexAnnotation]}
}
