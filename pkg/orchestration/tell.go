package orchestration

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// tell tells listeners, Events and metrics what has become of an action. before is nil for a new one.
func (q *Queue) tell(before, after *v1alpha1.RTAction) {
	moved := before == nil || phaseOf(before) != phaseOf(after)
	if moved || before.Status.WaitingFor != after.Status.WaitingFor {
		q.publish(before, after)
		for _, f := range q.listeners {
			f(after)
		}
	}
	if !moved {
		return
	}
	a, _ := record.Read(after) // for its times
	switch kind := string(after.Spec.Kind); {
	case a.Phase == rules.Running:
		metrics.ActionWait.WithLabelValues(kind).Observe(max(0, a.Entered.Sub(a.Since).Seconds()))
	case a.Phase.Over():
		metrics.Actions.WithLabelValues(kind, string(a.Phase)).Inc()
	}
}

// publish leaves Events on what the action is for, and on what it is done to.
func (q *Queue) publish(before, o *v1alpha1.RTAction) {
	did := events.Action{
		Name: o.Name, Kind: string(o.Spec.Kind), For: o.Spec.Beneficiary.Kind + " " + o.Spec.Beneficiary.Name,
		Reason: o.Spec.Reason, Phase: string(phaseOf(o)), WaitingFor: o.Status.WaitingFor, Message: o.Status.Message,
	}
	targets := targetsOf(o)
	switch p := phaseOf(o); {
	case p == rules.Waiting && o.Status.WaitingFor != "":
		q.Recorder.Publish(events.ActionWaits(beneficiary(o), did))
	case p == rules.Running && rules.Kind(o.Spec.Kind) == rules.Migrate && forItself(o): // it is told when something is done to it
	case p == rules.Running:
		q.Recorder.Publish(events.ActionStarted(append(targets, beneficiary(o)), did)...)
	case p == rules.RollingBack:
		q.Recorder.Publish(events.ActionRollsBack(append(targets, beneficiary(o)), did)...)
	case p == rules.Succeeded && rules.Kind(o.Spec.Kind) == rules.Migrate: // the pod in its place is told, and the PodMigration
	case p.Over() && before != nil && phaseOf(before).Holds():
		q.Recorder.Publish(events.ActionFinished(append(targets, beneficiary(o)), did)...)
	case p.Over():
		q.Recorder.Publish(events.ActionFinished([]runtime.Object{beneficiary(o)}, did)...)
	}
}

// forItself tells whether an action is done to the pod that it is for.
func forItself(o *v1alpha1.RTAction) bool {
	b := o.Spec.Beneficiary
	return b.Kind == "Pod" && slices.ContainsFunc(o.Spec.Pods, func(p v1alpha1.ActionPod) bool { return p.Namespace == b.Namespace && p.Name == b.Name })
}

// beneficiary is a reference to it.
func beneficiary(o *v1alpha1.RTAction) runtime.Object {
	b := o.Spec.Beneficiary
	m := metav1.ObjectMeta{Namespace: b.Namespace, Name: b.Name, UID: b.UID}
	switch b.Kind {
	case "Pod":
		return &corev1.Pod{ObjectMeta: m}
	case "McKube":
		return &mcv1.McKube{ObjectMeta: m}
	case "Node":
		return node(b.Name)
	}
	return &v1alpha1.RTAction{ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID}}
}

// targetsOf are references to the pods and nodes that the action is done to. Nodes are not told of each pod that comes and goes.
func targetsOf(o *v1alpha1.RTAction) []runtime.Object {
	var out []runtime.Object
	for _, p := range o.Spec.Pods {
		out = append(out, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID}})
	}
	for _, name := range []string{o.Spec.Node, o.Spec.TargetNode} {
		if name != "" && rules.Kind(o.Spec.Kind) != rules.Migrate {
			out = append(out, node(name))
		}
	}
	return out
}

// node is a reference; Events on nodes have their name for UID, as the kubelet's do.
func node(name string) runtime.Object {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
}

// measure serves how many actions wait, for what, and how many run.
func (q *Queue) measure(refused *refusals) {
	unwritable := map[string]bool{}
	maps.Copy(unwritable, refused.names)
	for _, name := range q.ledger.doubts() {
		unwritable[name] = true
	}
	metrics.ActionsUnwritable.WithLabelValues().Set(float64(len(unwritable)))
	depth, waiting := map[string]int{}, map[string]int{}
	for _, o := range q.ledger.all() {
		t := q.ticket(o)
		if !t.Phase.Over() {
			depth[string(o.Spec.Kind)+"/"+string(t.Phase)]++
		}
		if t.Phase == rules.Waiting && slices.Contains(Reasons, t.WaitingFor) {
			waiting[t.WaitingFor]++
		}
	}
	for _, kind := range rules.Kinds {
		for _, phase := range []rules.Phase{rules.Waiting, rules.Running, rules.RollingBack} {
			metrics.ActionsUnderWay.WithLabelValues(string(kind), string(phase)).Set(float64(depth[string(kind)+"/"+string(phase)]))
		}
	}
	for _, reason := range Reasons {
		metrics.ActionsWaiting.WithLabelValues(reason).Set(float64(waiting[reason]))
	}
}

func isConflict(err error) bool { return apierrors.IsConflict(err) }
