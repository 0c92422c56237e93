package record_test

import (
	"slices"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// Everything that does not stay where it is counts as moved for the cause, in whatever field of the record it is.
func TestWhatAnActionMoves(t *testing.T) {
	pods := []v1alpha1.ActionPod{{Namespace: "default", Name: "p", UID: "p"}, {Namespace: "default", Name: "q", UID: "q"}}
	for name, c := range map[string]struct {
		spec v1alpha1.RTActionSpec
		want []rules.Move
	}{
		"pods that are evicted":            {v1alpha1.RTActionSpec{Kind: "Preempt", Pods: pods}, []rules.Move{{Pod: "p"}, {Pod: "q"}}},
		"containers to other cores":        {v1alpha1.RTActionSpec{Kind: "Rearrange", Moves: []v1alpha1.ActionMove{{PodUID: "p", Container: "app", Core: 1}}}, []rules.Move{{Pod: "p", Container: "app"}}},
		"pods that go with their node":     {v1alpha1.RTActionSpec{Kind: "ReplaceNode", Displaces: pods}, []rules.Move{{Pod: "p"}, {Pod: "q"}}},
		"none, for which a node is opened": {v1alpha1.RTActionSpec{Kind: "OpenNode", Pods: pods}, nil},
	} {
		if got := record.Moves(c.spec); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
