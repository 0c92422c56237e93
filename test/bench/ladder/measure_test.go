package main

import (
	"slices"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
	"github.com/mainspring-rt/mainspring/test/bench/report"
)

// reported is a version of an RTNode with a container of each of two pods.
func reported(high, low v1alpha1.RTServerStatus) history.Version {
	node := &v1alpha1.RTNode{}
	for criticality, status := range map[string]v1alpha1.RTServerStatus{"High": high, "Low": low} {
		status.PodUID, status.Container = types.UID(criticality), "app"
		node.Spec.Servers = append(node.Spec.Servers, v1alpha1.RTServer{PodUID: status.PodUID, Container: "app", Criticality: criticality})
		node.Status.Servers = append(node.Status.Servers, status)
	}
	return history.Version{Type: watch.Modified, Object: node}
}

func TestTally(t *testing.T) {
	versions := []history.Version{
		reported(v1alpha1.RTServerStatus{}, v1alpha1.RTServerStatus{BudgetUs: 100, Misses: 1, Overruns: 2}),
		reported(v1alpha1.RTServerStatus{BudgetUs: 500, Misses: 3}, v1alpha1.RTServerStatus{Misses: 1, Overruns: 7}),
	}
	if got, want := tallyOf(versions), (tally{served: 2, misses: 4, missesHigh: 3, overruns: 7}); got != want {
		t.Errorf("%+v; want %+v: the largest counts of each", got, want)
	}
	if got := tallyOf([]history.Version{reported(v1alpha1.RTServerStatus{}, v1alpha1.RTServerStatus{})}); got.served != 0 {
		t.Errorf("%+v; want none served: no budget was ever in force", got)
	}
}

func tainted(name, uid string, by bool) history.Version {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}}
	if by {
		node.Spec.Taints = []corev1.Taint{{Key: mcoperatorv1.TaintPressure}}
	}
	return history.Version{Type: watch.Modified, Object: node}
}

func TestPressuresThatReturn(t *testing.T) {
	count, returned := pressures([]history.Version{
		tainted("a", "1", true), tainted("a", "1", true), tainted("b", "2", true), tainted("a", "1", false), tainted("a", "1", true),
		tainted("b", "2", false), tainted("b", "3", true), // another node of its name
	})
	if count != 4 || returned != 1 {
		t.Errorf("%d pressures, %d of which returned; want 4 and 1", count, returned)
	}
}

func TestWaits(t *testing.T) {
	var w waits
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	w.see("a", true, at(0))
	w.see("a", true, at(3))
	w.see("a", false, at(4))
	w.see("a", true, at(10))
	w.see("a", true, at(12))
	if w.longest != 3*time.Second {
		t.Errorf("the longest wait is %s, want 3s: the second began anew", w.longest)
	}
}

func TestTheSlowestNode(t *testing.T) {
	claim := func(after time.Duration, is metav1.ConditionStatus) karpenterv1.NodeClaim {
		c := karpenterv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Unix(100, 0))}}
		c.Status.Conditions = []status.Condition{{Type: karpenterv1.ConditionTypeInitialized, Status: is, LastTransitionTime: metav1.NewTime(time.Unix(100, 0).Add(after))}}
		return c
	}
	got := slowest([]karpenterv1.NodeClaim{claim(4*time.Second, metav1.ConditionTrue), claim(9*time.Second, metav1.ConditionTrue), claim(50*time.Second, metav1.ConditionUnknown)})
	if got != 9*time.Second {
		t.Errorf("the slowest node took %s, want 9s", got)
	}
}

func TestMissedGoals(t *testing.T) {
	figures := []report.Figure{
		{Key: "none", Value: 7}, {Key: "met", Goal: "0"}, {Key: "least", Goal: ">= 28", Value: 28}, {Key: "most", Goal: "<= 20", Value: 20},
		{Key: "budget_violations", Goal: "0", Value: 1}, {Key: "few", Goal: ">= 28", Value: 27}, {Key: "late", Goal: "<= 20", Value: 20.5},
	}
	got, err := missed(figures)
	want := []string{"budget_violations is 1, the goal is 0", "few is 27, the goal is >= 28", "late is 20.5, the goal is <= 20"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if _, err := missed([]report.Figure{{Key: "x", Goal: "few"}}); err == nil {
		t.Error("a goal that cannot be read is passed over")
	}
}
