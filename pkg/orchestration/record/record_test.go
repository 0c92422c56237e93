package record_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// A node is opened beside whatever is done to the one that pods are to leave.
func TestToOpenANodeTakesNoneOfTheNodeThatPodsLeave(t *testing.T) {
	pods := []v1alpha1.ActionPod{{Namespace: "default", Name: "p", UID: "p"}}
	on := func(u rules.Use) bool { return u.Resource == rules.Node && u.Name == "n" }
	for _, kind := range rules.Kinds {
		uses := record.Uses(v1alpha1.RTActionSpec{Kind: v1alpha1.ActionKind(kind), Pods: pods, Node: "n"})
		if got, want := slices.ContainsFunc(uses, on), kind != rules.OpenNode; got != want {
			t.Errorf("%s uses the node: %t, want %t", kind, got, want)
		}
		if !slices.ContainsFunc(uses, func(u rules.Use) bool { return u.Resource == rules.Pod }) {
			t.Errorf("%s does not have its pod", kind)
		}
	}
}

// No pod moves because a node is opened: other pods of the namespace may be moved meanwhile, however many nodes are opened for
// it.
func TestToOpenANodeChargesNoNamespace(t *testing.T) {
	pods := []v1alpha1.ActionPod{{Namespace: "a", Name: "p", UID: "p"}, {Namespace: "b", Name: "q", UID: "q"}, {Namespace: "a", Name: "r", UID: "r"}}
	for kind, want := range map[rules.Kind]map[string]int{rules.OpenNode: {}, rules.Preempt: {"a": 2, "b": 1}} {
		got := map[string]int{}
		for _, u := range record.Uses(v1alpha1.RTActionSpec{Kind: v1alpha1.ActionKind(kind), Pods: pods}) {
			if u.Resource == rules.Namespace {
				got[u.Name] += u.Amount
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s has %v of the namespaces, want %v", kind, got, want)
		}
	}
}

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
