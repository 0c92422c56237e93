package state_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// occupant is a pod with so many percent of the first core of a node, its McKube and its claim.
func occupant(name, node string, percent int64) []runtime.Object {
	p := statetest.On(statetest.WithClaim(statetest.Pod("default", name, types.UID(name), "app"), "app", name), node)
	return []runtime.Object{
		p, statetest.McKube("default", name, name, "High", percent, percent),
		statetest.Claim(p, name, "app", node, 0, rt.PPM(percent*10_000+1_000)),
	}
}

// row is a cluster of nodes of one core, each with a pod of so many percent.
func row(percent ...int64) (out []runtime.Object, nodes []*corev1.Node) {
	for i, share := range percent {
		n := statetest.Node(fmt.Sprintf("n%d", i), types.UID(fmt.Sprintf("n%d-uid", i)))
		nodes = append(nodes, n)
		out = append(append(out, n, statetest.Slice(n, statetest.Cores(1)...)), occupant(fmt.Sprintf("p%d", i), n.Name, share)...)
	}
	return out, nodes
}

func podsOf(broken []state.ServerView) (out []string) {
	for _, v := range broken {
		out = append(out, v.Pod)
	}
	slices.Sort(out)
	return out
}

// Each of two nodes may go, as the third has room for one of their pods; not both.
func TestNodesThatGoTogetherShareTheRoom(t *testing.T) {
	t.Parallel()
	objects, _ := row(40, 40, 40)
	s := statetest.Build(objects...)
	if got := append(s.Breaks("n0"), s.Breaks("n1")...); len(got) != 0 {
		t.Errorf("one at a time, %v break", podsOf(got))
	}
	if got := podsOf(s.BreaksAll([]string{"n0", "n1"}, nil, nil)); !slices.Equal(got, []string{"p1"}) {
		t.Errorf("together, %v break, want one: they may not go to each other", got)
	}
	if got := s.BreaksAll([]string{"n0", "n1"}, map[types.UID]bool{"p0": true}, nil); len(got) != 0 {
		t.Errorf("%v break though one of the two has room on a new node", podsOf(got))
	}
}

// What leaves a node that is being closed already has chosen before.
func TestNodesThatCloseAlreadyComeFirst(t *testing.T) {
	t.Parallel()
	for name, closing := range map[string]func(*corev1.Node){
		"by Karpenter's taint": func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, karpv1.DisruptedNoScheduleTaint) },
		"by deletion":          func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: statetest.Birth} },
	} {
		objects, nodes := row(30, 40, 40)
		closing(nodes[2])
		s := statetest.Build(objects...)
		if got := podsOf(s.Breaks("n0")); !slices.Equal(got, []string{"p0"}) {
			t.Errorf("%s: %v break, want p0: the room on n1 is p2's", name, got)
		}
		if got := s.Breaks("n2"); len(got) != 0 {
			t.Errorf("%s: %v break of the closing node itself, which has room on n0 and n1", name, podsOf(got))
		}
	}
}

func TestFitsNew(t *testing.T) {
	t.Parallel()
	objects, _ := row(60, 60, 20)
	s := statetest.Build(objects...)
	all := []types.UID{"p0", "p1", "p2"}
	if got := podsOf(s.FitsNew(statetest.Cores(1), all)); !slices.Equal(got, []string{"p1"}) {
		t.Errorf("one core refuses %v, want the second of 60 %%", got)
	}
	if got := s.FitsNew(statetest.Cores(2), all); len(got) != 0 {
		t.Errorf("two cores refuse %v", podsOf(got))
	}
	if got := s.FitsNew(nil, []types.UID{"nobody"}); len(got) != 0 {
		t.Errorf("a node without cores refuses %v, which is no real-time pod", podsOf(got))
	}
	coarse := statetest.Cores(2)
	for i := range coarse {
		coarse[i].Granularity = 400
	}
	if got := podsOf(s.FitsNew(coarse, all)); !slices.Equal(got, []string{"p0", "p1", "p2"}) {
		t.Errorf("cores that enforce too late refuse %v, want all, as the scheduler does", got)
	}
}

// Sums allow what response times do not: on a core with fixed priorities, which offers 90 %, two containers of 30 % do not
// share it, as one may run at the end of its period and again at once, before the other.
func TestAdmissionRefusesWhatSumsAllow(t *testing.T) {
	t.Parallel()
	cores := statetest.Cores(1)
	cores[0].Policy = rt.FixedPriority
	a, b := statetest.Node("a", "a-uid"), statetest.Node("b", "b-uid")
	objects := []runtime.Object{a, b, statetest.SliceOf(a, "rtgroup", cores...), statetest.SliceOf(b, "rtgroup", cores...)}
	objects = append(append(objects, occupant("first", "a", 30)...), occupant("second", "b", 30)...)
	s := statetest.Build(objects...)
	n, _ := s.NodeView("b")
	if free, need := n.Cores[0].Free, n.Servers[0].Charge(n.Granularity); free < need {
		t.Fatalf("%d ppm are free on b, less than %d, so sums refuse too", free, need)
	}
	if got := podsOf(s.Breaks("a")); !slices.Equal(got, []string{"first"}) {
		t.Errorf("%v break, want first", got)
	}
	if got := podsOf(s.FitsNew(cores, []types.UID{"first", "second"})); !slices.Equal(got, []string{"second"}) {
		t.Errorf("a new node of one such core refuses %v, want one of the two", got)
	}
}
