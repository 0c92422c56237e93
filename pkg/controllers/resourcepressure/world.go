package resourcepressure

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/usage"
)

// labelControlPlane is on nodes of the control plane, whose pods the SDI Migration Service leaves alone, too.
const labelControlPlane = "node-role.kubernetes.io/control-plane"

// world is what one look sees.
type world struct {
	*Controller
	now, read time.Time
	nodes     []*corev1.Node
	found     map[string]usage.Usage
	due       []setting
	history   history
	// pressed are the nodes under pressure by the settings that are due, in the order of nodes; anyhow those by any setting.
	pressed []pressure
	anyhow  map[string]bool
	// amounts of pods as the source knows them; nil: it does not, or was not asked.
	amounts map[types.NamespacedName]usage.Amount
	asked   bool
}

// pressure is a node under pressure by a setting.
type pressure struct {
	node  *corev1.Node
	by    setting
	track track
	begun time.Time
}

// gather reads what has been decided before, past every cache: what is decided next is not to repeat it.
func (w *world) gather(ctx context.Context) error {
	w.history = history{now: w.now, o: w.Options}
	w.anyhow = map[string]bool{}
	list := &v1alpha1.PodMigrationList{}
	for {
		if err := w.API.List(ctx, list, client.Limit(500), client.Continue(list.Continue)); err != nil {
			return fmt.Errorf("listing PodMigrations: %w", err)
		}
		for i := range list.Items {
			w.history.list = append(w.history.list, list.Items[i].DeepCopy())
		}
		if list.Continue == "" {
			return nil
		}
	}
}

// judge says whether a node is under pressure, by each setting that is due and that concerns a pod of it, and writes that
// down.
func (w *world) judge(ctx context.Context, n *corev1.Node) error {
	if _, ok := n.Labels[labelControlPlane]; ok {
		return nil
	}
	standard := w.settingOf(nil)
	concerned, err := w.concerned(ctx, n, standard)
	if err != nil {
		return err
	}
	for _, s := range w.due {
		key := trackKey{string(n.UID), s}
		t, known := w.tracks[key]
		if !known && s == standard {
			t = resumed(conditionReason(n))
		}
		w.tracks[key] = t.next(w.found[n.Name].Fresh(w.now, 3*s.interval), s, w.Options.Samples)
	}
	worst, by := w.worst(n, concerned, standard)
	w.series(n, worst.pressed())
	begun, err := w.condition(ctx, n, worst, by)
	if err != nil {
		return err
	}
	w.anyhow[n.Name] = worst.pressed()
	for _, s := range w.due {
		if t := w.tracks[trackKey{string(n.UID), s}]; concerned[s] && t.pressed() && t.evident() {
			w.pressed = append(w.pressed, pressure{node: n, by: s, track: t, begun: begun})
		}
	}
	return nil
}

// worst is the node under the setting that it is told by: that of the options, if it is under pressure by that, else the
// highest of those by which it is.
func (w *world) worst(n *corev1.Node, concerned map[setting]bool, standard setting) (worst track, by setting) {
	by = standard
	for s := range concerned {
		t := w.tracks[trackKey{string(n.UID), s}]
		above := s == standard || by != standard && (s.percent > by.percent || s.percent == by.percent && s.interval > by.interval)
		if t.pressed() && (!worst.pressed() || above) {
			worst, by = t, s
		}
	}
	return worst, by
}

// concerned are the settings that a node is judged by: that of the options, and those of its pods.
func (w *world) concerned(ctx context.Context, n *corev1.Node, standard setting) (map[setting]bool, error) {
	out := map[setting]bool{standard: true}
	if len(w.looked) < 2 { // nobody has another one
		return out, nil
	}
	pods, err := w.podsOn(ctx, n.Name)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		if p, err := w.Policies.For(ctx, &pods[i]); err == nil { // who cannot be judged is not moved either
			out[w.settingOf(p)] = true
		}
	}
	return out, nil
}

func (w *world) podsOn(ctx context.Context, node string) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := w.Client.List(ctx, list, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("listing pods of node %s: %w", node, err)
	}
	return list.Items, nil
}

// amount that a pod uses: as measured, where the source measures pods, else as requested.
func (w *world) amount(ctx context.Context, p *corev1.Pod) usage.Amount {
	if pods, ok := w.Source.(usage.PodSource); ok && !w.asked {
		w.asked = true
		ctx, cancel := context.WithTimeout(ctx, w.Options.SourceTimeout)
		defer cancel()
		w.amounts, _ = pods.Pods(ctx) // without it requests do
	}
	if a, ok := w.amounts[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}]; ok {
		return a
	}
	return usage.Requested(p)
}

// rooms are the nodes that take pods, with what is on its way there.
func (w *world) rooms(ctx context.Context) []*room {
	var out []*room
	moves := w.history.underway(w.read, func(m *v1alpha1.PodMigration) usage.Amount { return w.moved(ctx, m) })
	for _, n := range w.nodes {
		u := w.found[n.Name].Fresh(w.now, w.Options.MaxAge())
		if !open(n, u, w.anyhow[n.Name]) {
			continue
		}
		r := &room{Node: n, CPU: u.CPU.Ratio, Memory: u.Memory.Ratio}
		for _, m := range moves {
			if m.to == n.Name {
				r.CPU, r.Memory = r.after(w.Source.Name(), m.amount)
			}
		}
		out = append(out, r)
	}
	return out
}

// leaving is what is on its way from a node, as ratios of it.
func (w *world) leaving(ctx context.Context, n *corev1.Node) (cpu, memory float64) {
	for _, m := range w.history.underway(w.read, func(m *v1alpha1.PodMigration) usage.Amount { return w.moved(ctx, m) }) {
		if m.from == n.Name {
			c, b := usage.Shares(w.Source.Name(), n, m.amount)
			cpu, memory = cpu+c, memory+b
		}
	}
	return cpu, memory
}

// moved is the amount of a pod that migrates: on record, or of the pod as long as it is there.
func (w *world) moved(ctx context.Context, m *v1alpha1.PodMigration) usage.Amount {
	if a, ok := decode(m.Annotations[AnnotationAmount]); ok {
		return a
	}
	p := &corev1.Pod{}
	if err := w.Client.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.PodName}, p); err != nil {
		return usage.Amount{} // nobody knows any longer
	}
	return w.amount(ctx, p)
}

// conditionOf a node, and whether it has one.
func conditionOf(n *corev1.Node) (corev1.NodeCondition, bool) {
	for _, c := range n.Status.Conditions {
		if c.Type == ConditionResourcePressure {
			return c, true
		}
	}
	return corev1.NodeCondition{}, false
}

// conditionReason is the reason of a node's pressure; empty when it is under none.
func conditionReason(n *corev1.Node) string {
	if c, ok := conditionOf(n); ok && c.Status == corev1.ConditionTrue {
		return c.Reason
	}
	return ""
}

// seconds is a time as conditions have it.
func seconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }
