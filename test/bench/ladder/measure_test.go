package main

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
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
