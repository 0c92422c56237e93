package events_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mainspring-rt/mainspring/pkg/events"
)

var app = events.Where{Pod: "default/web", Container: "app", Node: "edge-1", Core: 2}

func TestEventsSayWhatAndWhere(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{}
	const where = "container app of pod default/web on core 2 of node edge-1"
	for _, c := range []struct {
		event    events.Event
		kind     string
		reason   string
		contains []string
	}{
		{events.Placed(pod, "u", app, "T1"), corev1.EventTypeNormal, "Placed", []string{where, "T1"}},
		{events.Moved(pod, "u", app, 1, "because"), corev1.EventTypeNormal, "Moved", []string{"core 1", where, "because"}},
		{events.MadeRoom(pod, "u", app, 1), corev1.EventTypeNormal, "MadeRoom", []string{"core 1", where}},
		{events.Refused(pod, "u", "CoreFull", "needs more"), corev1.EventTypeWarning, "NotAdmitted", []string{"CoreFull", "needs more"}},
		{events.Adopted(pod, "u", app), corev1.EventTypeNormal, "Adopted", []string{where}},
		{events.Escalated(pod, app, "hi"), corev1.EventTypeNormal, "Escalated", []string{where, "hi"}},
		{events.Recovered(pod, app), corev1.EventTypeNormal, "Recovered", []string{where}},
		{events.Pressure(pod, "u", 3), corev1.EventTypeWarning, "CPUPressure", []string{"3"}},
		{events.AgentSilent(pod, "u", "since long"), corev1.EventTypeWarning, "AgentSilent", []string{"since long"}},
		{events.Preempting(pod, "u", "edge-1", []string{"a", "b"}), corev1.EventTypeNormal, "Preempting", []string{"edge-1", "a, b"}},
		{events.Preempted(pod, "u", "default/web", "High", "edge-1"), corev1.EventTypeWarning, "Preempted", []string{"default/web", "High", "edge-1"}},
		{events.Migrating(pod, "u", "default/web", "a", "b", "x", true), corev1.EventTypeNormal, "Migrating", []string{"from node a to run on node b, where cores are kept for it (action x)"}},
		{events.Migrating(pod, "u", "default/web", "a", "b", "x", false), corev1.EventTypeNormal, "Migrating", []string{"from node a to run on node b (action x)"}},
		{events.Migrating(pod, "u", "default/web", "a", "", "x", false), corev1.EventTypeNormal, "Migrating", []string{"from node a to run where the scheduler puts it (action x)"}},
		{events.Migrated(pod, "u", "default/web", "a", "b", "x", true), corev1.EventTypeNormal, "Migrated", []string{"runs on node b with its cores, in place of one on node a (action x)"}},
		{events.Migrated(pod, "u", "default/web", "a", "b", "x", false), corev1.EventTypeNormal, "Migrated", []string{"runs on node b, in place of one on node a (action x)"}},
	} {
		if c.event.Object != pod || c.event.Type != c.kind || c.event.Reason != c.reason {
			t.Errorf("event is %+v, want %s %s", c.event, c.kind, c.reason)
		}
		for _, text := range c.contains {
			if !strings.Contains(c.event.Message, text) {
				t.Errorf("%s says %q, want %q in it", c.reason, c.event.Message, text)
			}
		}
	}
}

// Two Events are one when nothing that matters differs, and two as soon as object, place or level do.
func TestEventsThatDifferAreKept(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{}
	elsewhere := app
	elsewhere.Core = 3
	same := events.Placed(pod, "u", app, "T1")
	if again := events.Placed(pod, "u", app, "T1"); !slices.Equal(same.Dedupe, again.Dedupe) {
		t.Errorf("the same Event has keys %v and %v", same.Dedupe, again.Dedupe)
	}
	seen := map[string]bool{fmt.Sprint(same.Dedupe): true}
	for _, other := range []events.Event{
		events.Placed(pod, "other", app, "T1"), events.Placed(pod, "u", elsewhere, "T1"), events.Conflict(pod, "u", "older"),
	} {
		if key := fmt.Sprint(other.Dedupe); seen[key] {
			t.Errorf("keys %s are there twice", key)
		} else {
			seen[key] = true
		}
	}
}

// A container that is raised ten times in a minute has an Event that says so by its count: none is taken for the one before.
func TestRepeatedRaisesAreEachRecorded(t *testing.T) {
	t.Parallel()
	for _, e := range []events.Event{events.Escalated(&corev1.Pod{}, app, "hi"), events.Recovered(&corev1.Pod{}, app)} {
		if len(e.Dedupe) > 0 {
			t.Errorf("%s is left out where %v was recorded", e.Reason, e.Dedupe)
		}
	}
}
