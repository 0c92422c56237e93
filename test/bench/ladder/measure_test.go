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

func second(s int) time.Time { return time.Unix(int64(s), 0) }

// made is a pod that was made then, on a node.
func made(name string, at int, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(name), CreationTimestamp: metav1.NewTime(second(at))}, Spec: corev1.PodSpec{NodeName: node}}
}

func TestWaits(t *testing.T) {
	w := waits{begun: second(0)}
	a := made("a", -20, "")
	for _, at := range []int{1, 3} {
		w.see(a, true, second(at))
	}
	w.see(a, false, second(4))
	w.see(a, true, second(10))
	w.see(a, true, second(12)) // and is gone
	b := made("b", 5, "")
	w.see(b, true, second(6))
	w.see(b, false, second(7))
	got := w.all()
	want := []wait{{from: second(0), to: second(4)}, {from: second(5), to: second(7)}, {from: second(10), to: second(12)}}
	if !slices.Equal(got, want) || w.longest() != 4*time.Second {
		t.Errorf("waits are %v, the longest %s; want %v: since it is looked, since it was made, and anew", got, w.longest(), want)
	}
}

// ordered is a version of a NodeClaim that was ordered then and initialised so much later.
func ordered(node string, at, took int, is metav1.ConditionStatus) history.Version {
	c := &karpenterv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{UID: types.UID(node), CreationTimestamp: metav1.NewTime(second(at))}}
	c.Status.NodeName = node
	c.Status.Conditions = []status.Condition{{Type: karpenterv1.ConditionTypeInitialized, Status: is, LastTransitionTime: metav1.NewTime(second(at + took))}}
	return history.Version{Type: watch.Modified, Object: c}
}

// A pod is measured by the node that was opened for it, however slow others were: those of the beginning, a hundred at once, say nothing about it.
func TestWhoWaitsIsMeasuredByItsOwnNode(t *testing.T) {
	opened := openings([]history.Version{
		ordered("slow", 0, 90, metav1.ConditionTrue), ordered("fast", 0, 5, metav1.ConditionTrue), ordered("own", 102, 30, metav1.ConditionTrue),
		ordered("never", 100, 1, metav1.ConditionUnknown), {Type: watch.Deleted, Object: &karpenterv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{UID: "own"}}},
	})
	if len(opened) != 3 {
		t.Fatalf("openings are %v, want three: what has gone was opened, and what never served was not", opened)
	}
	for name, c := range map[string]struct {
		node   string
		waited int
		want   time.Duration
	}{
		"its own node, ordered meanwhile": {"own", 40, 10 * time.Second},
		"one that was there, and slow":    {"slow", 40, 35 * time.Second},
		"none":                            {"", 40, 35 * time.Second},
		"no longer than it takes":         {"own", 20, 0},
	} {
		w := waits{begun: second(50)}
		w.see(made("p", 100, c.node), true, second(100+c.waited))
		if got := w.beyond(opened); got != c.want {
			t.Errorf("%s: %s beyond what a node takes, want %s", name, got, c.want)
		}
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
