package hollow_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/hollow"
)

func TestAgentsPublishTheCoresOfTheirNodes(t *testing.T) {
	w := newWorld(t)
	node := atom("publish", "")
	real := atom("real", "")
	delete(real.Annotations, "kwok.x-k8s.io/node")
	w.create(node, real)
	w.fleet()
	w.eventually("the slice", func() string {
		found := w.slices(node.Name)
		if len(found) != 1 || len(found[0].Spec.Devices) != 3 {
			return fmt.Sprint(found)
		}
		return ""
	})
	slice := w.slices(node.Name)[0]
	if owner := slice.OwnerReferences[0]; owner.Kind != "Node" || owner.UID != node.UID || slice.Spec.Driver != "cpu.mckube.io" || slice.Spec.Pool.Name != node.Name {
		t.Errorf("slice %+v", slice)
	}
	if err := w.Delete(t.Context(), &slice); err != nil {
		t.Fatal(err)
	}
	w.eventually("the slice again", func() string {
		if again := w.slices(node.Name); len(again) != 1 || again[0].UID == slice.UID {
			return fmt.Sprint(again)
		}
		return ""
	})
	node.Annotations[hollow.AnnotationScript] = "0s granularity 400"
	if err := w.Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	w.eventually("the new granularity", func() string {
		again := w.slices(node.Name)
		if len(again) != 1 || again[0].Spec.Pool.Generation != 2 || *again[0].Spec.Devices[0].Attributes[v1alpha1.AttributeGranularity].IntValue != 400 {
			return fmt.Sprint(again)
		}
		return ""
	})
	if n := len(w.slices(real.Name)); n != 0 {
		t.Errorf("%d slices of a node that is not simulated", n)
	}
}

func TestAgentsObeyAndReport(t *testing.T) {
	w := newWorld(t)
	node := atom("obey", "")
	w.create(node)
	w.fleet()
	pod := podOn(node.Name, "app", "1s overrun 2; 2s miss 3")
	w.create(pod)
	server := highServer(pod)
	rtNode := rtNodeOf(node, server)
	rtNode.Spec.Plan = []v1alpha1.RTCorePlan{planFor(server)}
	w.create(rtNode)
	raised := w.eventuallyStatus(node.Name, "the raise", func(s v1alpha1.RTNodeStatus) bool {
		return len(s.Servers) == 1 && s.Servers[0].Level == "hi" && s.Servers[0].BudgetUs == 4_000 && s.Servers[0].Misses == 3
	})
	if s := raised.Servers[0]; s.Overruns != 2 || s.LastOverrunTime == nil || s.Error != "" || raised.ObservedGeneration != 1 || raised.Backend != "simulated" {
		t.Errorf("status %+v", raised)
	}
	if !meta.IsStatusConditionTrue(raised.Conditions, v1alpha1.ConditionReady) || !meta.IsStatusConditionTrue(raised.Conditions, v1alpha1.ConditionAgentRealtime) {
		t.Errorf("conditions %+v", raised.Conditions)
	}
	w.eventuallyStatus(node.Name, "the recovery", func(s v1alpha1.RTNodeStatus) bool {
		return s.Servers[0].Level == "low" && s.Servers[0].BudgetUs == 2_000 && s.HeartbeatTime.After(raised.HeartbeatTime.Time)
	})
}

func TestAgentsContinueWhereAnEarlierOneStopped(t *testing.T) {
	w := newWorld(t)
	node := atom("continue", "")
	w.create(node)
	stop := w.fleet()
	pod := podOn(node.Name, "continues", "0s overrun 3")
	w.create(pod)
	server := highServer(pod)
	rtNode := rtNodeOf(node, server)
	w.create(rtNode)
	counted := func(s v1alpha1.RTNodeStatus) bool { return len(s.Servers) == 1 && s.Servers[0].Overruns == 3 }
	before := w.eventuallyStatus(node.Name, "the overruns", counted)
	stop()
	w.fleet()
	w.eventuallyStatus(node.Name, "the next heartbeat, with the same counters", func(s v1alpha1.RTNodeStatus) bool {
		return counted(s) && s.HeartbeatTime.After(before.HeartbeatTime.Time)
	})
}

func TestAgentsIgnoreTheRTNodeOfAnEarlierNode(t *testing.T) {
	w := newWorld(t)
	earlier := atom("renamed", "")
	earlier.UID = "earlier"
	stale := rtNodeOf(earlier)
	node := atom("renamed", "")
	w.create(stale, node)
	w.fleet()
	w.eventually("the slice", func() string {
		if len(w.slices(node.Name)) == 1 {
			return ""
		}
		return "none"
	})
	found := &v1alpha1.RTNode{}
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(stale), found); err != nil || found.Status.HeartbeatTime != nil {
		t.Errorf("status %+v, %v", found.Status, err)
	}
}

func TestBadScriptsAreToldOnTheirObject(t *testing.T) {
	w := newWorld(t)
	node := atom("bad", "0s pressure 95; 5s explode")
	w.create(node)
	w.fleet()
	w.eventually("the Event", func() string {
		events := &corev1.EventList{}
		if err := w.List(t.Context(), events); err != nil {
			return err.Error()
		}
		for _, e := range events.Items {
			if e.InvolvedObject.Name == node.Name && e.Reason == "BadScript" && strings.Contains(e.Message, `step 2 ("5s explode")`) {
				return ""
			}
		}
		return fmt.Sprintf("%d events", len(events.Items))
	})
}
