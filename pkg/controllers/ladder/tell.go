package ladder

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	karpenterevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// publish records an Event on each of the objects.
func (l *ladder) publish(on []runtime.Object, make func(on runtime.Object) events.Event) {
	for _, o := range on {
		e := make(o)
		l.Recorder.Publish(karpenterevents.Event{InvolvedObject: e.Object, Type: e.Type, Reason: e.Reason, Message: e.Message, DedupeValues: e.Dedupe})
	}
}

// report publishes what is new since the last look: the stage of the episode, and the actions that answer it. It depends only on
// stored objects, so after a crash the next process publishes it.
func (v visit) report() {
	e, m := v.scene.Episode, v.memory
	fresh, before := m.entered.IsZero(), m.episode
	if m.enter(e, v.scene.Now) {
		m.count(e)
		v.tellStage(before, fresh)
	}
	if !e.Active {
		return
	}
	told := m.told
	if told == nil {
		told = map[string]bool{}
		for _, o := range v.scene.Answers {
			told[o.Name] = fresh && phaseOf(o).Over() // the process before this one had the time to publish it
		}
	}
	m.told = map[string]bool{} // of those that are known still: a pressure may last, and a name come again
	for _, o := range slices.Concat(v.scene.Answers, v.scene.Returns) {
		if !told[o.Name] && !m.told[o.Name] {
			v.tellAction(o)
		}
		m.told[o.Name] = true
	}
}

// tellStage publishes the stage of the answer to the pressure.
func (v visit) tellStage(before Episode, fresh bool) {
	e, on := v.scene.Episode, v.objects()
	at := e.Cause()
	switch {
	case e.Pressed() && before.Active && !before.Pressed():
		v.publish(on, func(o runtime.Object) events.Event { return events.PressureReturned(o, at, v.node.Name, e.Message) })
	case e.Pressed() && !before.Pressed():
		v.publish(on, func(o runtime.Object) events.Event {
			return events.PressureBegan(o, at, v.node.Name, e.Stage, e.Message)
		})
		if !fresh {
			metrics.PressureEpisodes.WithLabelValues(e.Stage).Inc()
		}
	case e.Stage == StageEased:
		v.publish(on, func(o runtime.Object) events.Event { return events.PressureEased(o, at, v.node.Name) })
		metrics.PressureSeconds.WithLabelValues().Observe(v.scene.Now.Sub(e.Begun).Seconds())
	case e.Stage == StageEnded && (!fresh || v.scene.Now.Sub(e.Begun) < lag):
		v.publish(on, func(o runtime.Object) events.Event { return events.PressureEnded(o, at, v.node.Name) })
	}
}

// tellAction publishes the action against the pressure, and why no cheaper one.
func (v visit) tellAction(o *v1alpha1.RTAction) {
	on := append([]runtime.Object{v.nodeObject()}, v.podObjects(o.Spec.Beneficiary.Namespace, o.Spec.Beneficiary.Name, o.Spec.Beneficiary.UID)...)
	for _, p := range o.Spec.Pods {
		on = append(on, v.podObjects(p.Namespace, p.Name, p.UID)...)
	}
	for _, s := range v.scene.Affected {
		on = append(on, v.podObjects(s.Namespace, s.Pod, s.PodUID)...)
	}
	kind := rules.Kind(o.Spec.Kind)
	make := func(on runtime.Object) events.Event {
		return events.PressureAnswered(on, o.Name, string(kind), kind.Rung(), o.Spec.Message)
	}
	if o.Spec.Reason == ReasonRecovery {
		make = func(on runtime.Object) events.Event { return events.PressureGivenBack(on, o.Name, o.Spec.Message) }
		metrics.PressureReturns.WithLabelValues().Inc()
	}
	v.publish(distinct(on), make)
}

// answered counts the node as one with an answer again.
func (v visit) answered() {
	v.memory.unanswered = ""
	v.memory.count(v.scene.Episode)
}

// unanswered publishes that nothing would help, once for each reason.
func (v visit) unanswered(why string) {
	if v.memory.unanswered == why {
		return
	}
	v.memory.unanswered = why
	v.memory.count(v.scene.Episode)
	v.publish(v.objects(), func(o runtime.Object) events.Event {
		return events.PressureUnanswered(o, v.scene.Cause(), v.node.Name, why)
	})
}

// barred reports that the API server refuses to store the next step, if that is the error. Nothing continues before the step is
// stored, in either direction.
func (v visit) barred(err error) error {
	if forbidden(err) {
		v.memory.barred = true
		v.unanswered("what comes next is refused: " + record.Short(err.Error(), longestRefusal))
	}
	return err
}

// freed takes that back: the step was carried out, or is no longer necessary.
func (v visit) freed() {
	if v.memory.barred {
		v.memory.barred = false
		v.answered()
	}
}

func (v visit) nodeObject() runtime.Object {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: v.node.Name, UID: v.node.UID}}
}

// objects are the node and, as pods and McKubes, the affected containers and the beneficiaries of actions. Once the episode has
// ended they are those of its last look.
func (v visit) objects() []runtime.Object {
	if !v.scene.Active {
		return append([]runtime.Object{v.nodeObject()}, v.memory.concerned...)
	}
	out := []runtime.Object{v.nodeObject()}
	for _, s := range v.scene.Affected {
		out = append(out, v.podObjects(s.Namespace, s.Pod, s.PodUID)...)
	}
	for _, o := range v.scene.Answers {
		if b := o.Spec.Beneficiary; b.Kind == "Pod" {
			out = append(out, v.podObjects(b.Namespace, b.Name, b.UID)...)
		}
	}
	out = distinct(out)
	v.memory.concerned = out[1:]
	return out
}

// podObjects are a pod and its McKubes, while the pod exists.
func (v visit) podObjects(namespace, name string, uid types.UID) []runtime.Object {
	view, ok := v.snapshot.Pod(uid)
	if !ok {
		return nil
	}
	out := []runtime.Object{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid}}}
	for _, g := range view.Governed {
		out = append(out, g.McKube)
	}
	return out
}

func distinct(list []runtime.Object) []runtime.Object {
	seen := map[types.UID]bool{}
	return slices.DeleteFunc(list, func(o runtime.Object) bool {
		uid := o.(metav1.Object).GetUID()
		twice := seen[uid]
		seen[uid] = true
		return twice
	})
}

// count updates the gauges: how many nodes are in which stage, and how many have no answer.
func (m *memory) count(e Episode) {
	stage, vain := "", e.Pressed() && m.unanswered != ""
	if e.Active {
		stage = e.Stage
	}
	if m.counted != stage {
		if m.counted != "" {
			metrics.PressureNodes.WithLabelValues(m.counted).Dec()
		}
		if stage != "" {
			metrics.PressureNodes.WithLabelValues(stage).Inc()
		}
		m.counted = stage
	}
	if m.vain != vain {
		metrics.PressureUnanswered.WithLabelValues().Add(map[bool]float64{true: 1, false: -1}[vain])
		m.vain = vain
	}
}
