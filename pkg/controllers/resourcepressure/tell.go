package resourcepressure

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/usage"
)

// ConditionResourcePressure is the condition of a Node that is short of CPU or memory. Unknown: so it was, and nobody knows
// whether it still is.
const ConditionResourcePressure corev1.NodeConditionType = "ResourcePressure"

// refreshAfter is how long a condition may tell of an older reading than the last.
const refreshAfter = time.Minute

// condition writes down whether a node is under pressure, where that is new or tells of an old reading, and gives the time since which it is. That its usage
// is unknown for a while neither ends the pressure nor begins it anew, so lastTransitionTime is then when the pressure began.
func (w *world) condition(ctx context.Context, n *corev1.Node, t track, by setting) (time.Time, error) {
	before, had := conditionOf(n)
	want := corev1.NodeCondition{Type: ConditionResourcePressure, Status: corev1.ConditionFalse, Reason: reasonNone}
	want.Message = fmt.Sprintf("CPU and memory are not above the threshold of %d %% (source %s)", by.percent, w.Source.Name())
	switch {
	case t.pressed() && t.evident():
		want.Status, want.Reason, want.Message = corev1.ConditionTrue, t.reason(), t.words(by, w.Source.Name())
	case t.pressed():
		want.Status, want.Reason, want.Message = corev1.ConditionUnknown, reasonUnknown, t.words(by, w.Source.Name())
	case !had:
		return time.Time{}, nil // a node that never was needs none
	}
	was := had && before.Status != corev1.ConditionFalse
	want.LastHeartbeatTime, want.LastTransitionTime = seconds(w.now), seconds(w.now)
	if had && was == t.pressed() {
		want.LastTransitionTime = before.LastTransitionTime
	}
	if had && w.isCurrent(before, want) {
		return want.LastTransitionTime.Time, nil
	}
	if err := w.write(ctx, n, want); err != nil {
		return time.Time{}, err
	}
	begun := want.LastTransitionTime.Time
	if was != t.pressed() {
		w.publishTransition(n, want, t.pressed(), begun)
	}
	return begun, nil
}

// publishTransition records that a pressure has begun or ended.
func (w *world) publishTransition(n *corev1.Node, c corev1.NodeCondition, began bool, at time.Time) {
	event := events.ResourcePressureEnded(n, string(n.UID), at.UTC().Format(time.RFC3339), c.Message)
	if began {
		event = events.ResourcePressureBegan(n, string(n.UID), at.UTC().Format(time.RFC3339), c.Reason, c.Message)
	}
	w.Recorder.Publish(event)
}

// isCurrent reports whether a condition says what it should, with a reading that is not old.
func (w *world) isCurrent(is, want corev1.NodeCondition) bool {
	return is.Status == want.Status && is.Reason == want.Reason && (is.Message == want.Message || w.now.Sub(is.LastHeartbeatTime.Time) < refreshAfter)
}

// write patches the one condition.
func (w *world) write(ctx context.Context, n *corev1.Node, c corev1.NodeCondition) error {
	changed := n.DeepCopy()
	kept := changed.Status.Conditions[:0]
	for _, other := range changed.Status.Conditions {
		if other.Type != c.Type {
			kept = append(kept, other)
		}
	}
	changed.Status.Conditions = append(kept, c)
	if err := w.Client.Status().Patch(ctx, changed, client.StrategicMergeFrom(n)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing condition %s of node %s: %w", c.Type, n.Name, err)
	}
	return nil
}

// series tells metrics of a node.
func (w *world) series(n *corev1.Node, pressed bool) {
	w.counted[n.Name] = true
	value := 0.0
	if pressed {
		value = 1
	}
	metrics.ResourcePressed.WithLabelValues(n.Name).Set(value)
	u := w.found[n.Name].Fresh(w.now, w.Options.MaxAge())
	for resource, v := range map[string]usage.Value{"cpu": u.CPU, "memory": u.Memory} {
		if v.Known() {
			metrics.NodeUsage.WithLabelValues(n.Name, resource).Set(v.Ratio)
		} else {
			metrics.NodeUsage.DeleteLabelValues(n.Name, resource)
		}
	}
}

func (c *Controller) forgetSeries(there map[string]bool) {
	for name := range c.counted {
		if !there[name] {
			metrics.ForgetNode(name)
			delete(c.counted, name)
		}
	}
}

// kindOf the source's error.
func kindOf(err error) string {
	var named *usage.Error
	if errors.As(err, &named) {
		return named.Kind
	}
	return err.Error()
}
