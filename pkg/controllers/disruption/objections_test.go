package disruption

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// edges are nodes of one core, each with a container of so many percent; the first is applied with a budget.
func edges(appliedUs int64, percent ...int64) *state.Snapshot {
	var objects []runtime.Object
	for i, share := range percent {
		n := statetest.Node(fmt.Sprintf("n%d", i), types.UID(fmt.Sprintf("n%d-uid", i)))
		name := fmt.Sprintf("p%d", i)
		p := statetest.On(statetest.WithClaim(statetest.Pod("default", name, types.UID(name), "app"), "app", name), n.Name)
		objects = append(objects, n, statetest.Slice(n, statetest.Cores(1)...), p, statetest.McKube("default", name, name, "High", share, share),
			statetest.Claim(p, name, "app", n.Name, 0, 0))
		if i == 0 {
			rtn := statetest.RTNode(n, statetest.RTServer(p, "app", 0))
			rtn.Status.Servers = []v1alpha1.RTServerStatus{{PodUID: p.UID, Container: "app", BudgetUs: appliedUs}}
			objects = append(objects, rtn)
		}
	}
	return statetest.Build(objects...)
}

func TestBusyNodesAreLeftAlone(t *testing.T) {
	t.Parallel()
	calm, raised := edges(10_000, 40, 40), edges(10_001, 40, 40)
	migrate := &v1alpha1.RTAction{}
	migrate.Name, migrate.Spec.Kind, migrate.Spec.Node, migrate.Spec.TargetNode = "migrate-1", "Migrate", "n1", "n2"
	preempt := &v1alpha1.RTAction{}
	preempt.Name, preempt.Spec.Kind = "preempt-1", "Preempt"
	preempt.Spec.Pods = []v1alpha1.ActionPod{{Namespace: "default", Name: "p0", UID: "p0"}}
	all := []*v1alpha1.RTAction{migrate, preempt}
	for name, tc := range map[string]struct {
		s         *state.Snapshot
		hand      held
		node      string
		escalated bool
		want      string // reason and part of the message
	}{
		"calm":                        {calm, held{}, "n0", true, ""},
		"source of a migration":       {calm, inHand(all, ""), "n1", true, "ActionInFlight: action migrate-1 has node n1"},
		"target of a migration":       {calm, inHand(all, ""), "n2", true, "ActionInFlight: action migrate-1 has node n2"},
		"a victim runs there":         {calm, inHand(all, ""), "n0", true, "ActionInFlight: action preempt-1 has pod default/p0"},
		"the action's own node":       {calm, inHand(all, "migrate-1"), "n1", true, ""},
		"a raised budget":             {raised, held{}, "n0", true, "ContainerEscalated: container app of pod default/p0"},
		"a raised budget, do not ask": {raised, held{}, "n0", false, ""},
		"a node without cores":        {calm, held{}, "elsewhere", true, ""},
	} {
		got := ""
		if o := tc.hand.busy(tc.s, tc.node, tc.escalated); o != nil {
			got = o.reason + ": " + o.message
		}
		if !strings.HasPrefix(got, tc.want) || got != "" && tc.want == "" {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestHomelessContainersAreNamedByNode(t *testing.T) {
	t.Parallel()
	s := edges(10_000, 60, 60, 10)
	got := homeless(s, []string{"n0", "n1", "ordinary"}, nil, nil)
	if len(got) != 1 || got[0].node != "n1" || got[0].reason != ReasonNoCore || !strings.Contains(got[0].message, "container app of pod default/p1") {
		t.Errorf("objections are %+v, want one to closing n1: n2 takes one of the two", got)
	}
	if got := homeless(s, []string{"n0", "n1"}, map[types.UID]bool{"p0": true}, nil); len(got) != 0 {
		t.Errorf("objections are %+v though one of the pods has a new node", got)
	}
}

func TestListsAreShortened(t *testing.T) {
	t.Parallel()
	if got := few([]string{"a", "b", "c", "d", "e"}); got != "a, b, c and 2 more" {
		t.Error(got)
	}
}
