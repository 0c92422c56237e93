package state_test

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// A pod goes to the node that has a core for each of its containers, accepts it, and passes the filters.
func TestDestination(t *testing.T) {
	t.Parallel()
	a, b, c := statetest.Node("a", "a-1"), statetest.Node("b", "b-1"), statetest.Node("c", "c-1")
	c.Spec.Taints = []corev1.Taint{{Key: "pressed", Effect: corev1.TaintEffectNoSchedule}}
	p := statetest.On(statetest.WithClaim(statetest.WithClaim(statetest.Pod("default", "p", "p-1", "one", "two"), "one", "p-one"), "two", "p-two"), "a")
	first, second := statetest.McKube("default", "one", "p", "High", 60, 60), statetest.McKube("default", "two", "p", "Low", 50, 50)
	first.Spec.Container, second.Spec.Container = "one", "two"
	objects := []runtime.Object{
		a, b, c, statetest.Slice(a, statetest.Cores(2)...), statetest.Slice(b, statetest.Cores(2)...), statetest.Slice(c, statetest.Cores(4)...), p, first, second,
		statetest.Claim(p, "p-one", "one", "a", 0, 601_000), statetest.Claim(p, "p-two", "two", "a", 1, 501_000),
	}
	s := statetest.Build(objects...)
	d, ok := s.Destination("p-1")
	if !ok || d.Node != "b" || len(d.Cores) != 2 || d.Cores["p-1/one"] == d.Cores["p-1/two"] {
		t.Errorf("%+v %t, want two cores of b: c has a taint", d, ok)
	}
	if d, ok := s.Destination("p-1", func(n *state.NodeView) bool { return n.Name != "b" }); ok {
		t.Errorf("%+v does not pass the filter", d)
	}
	target, _ := s.NodeView("b")
	if cores, ok := s.CoresOf("p-1", target); !ok || !maps.Equal(cores, d.Cores) {
		t.Errorf("%v %t, want those of the destination, %v", cores, ok, d.Cores)
	}
	if cores, ok := s.CoresOf("nobody", target); ok {
		t.Errorf("%v for no pod", cores)
	}
	if d, ok := s.Destination("nobody"); ok {
		t.Errorf("%+v for no pod", d)
	}
	// The node with the most left comes first, and on it the core with the most left.
	e := statetest.Node("e", "e-1")
	roomy := statetest.Build(append(objects, e, statetest.Slice(e, statetest.Cores(3)...), statetest.Claim(p, "p-else", "one", "b", 0, 301_000), statetest.Claim(p, "p-more", "two", "b", 1, 301_000))...)
	if d, ok := roomy.Destination("p-1"); !ok || d.Node != "e" {
		t.Errorf("%+v %t, want e: b is in use", d, ok)
	}
	n, _ := s.NodeView("c")
	if !n.Tainted("pressed") || n.Tainted("other") || n.Label(corev1.LabelHostname) != "c" {
		t.Error("taints and labels of the node are not told")
	}
}

// Pods that leave together find room together, or not at all.
func TestWhyThereIsNoDestination(t *testing.T) {
	t.Parallel()
	a, b, c := statetest.Node("a", "a-1"), statetest.Node("b", "b-1"), statetest.Node("c", "c-1")
	p := statetest.On(statetest.WithClaim(statetest.WithClaim(statetest.Pod("default", "p", "p-1", "one", "two"), "one", "p-one"), "two", "p-two"), "a")
	first, second := statetest.McKube("default", "one", "p", "High", 60, 60), statetest.McKube("default", "two", "p", "Low", 50, 50)
	first.Spec.Container, second.Spec.Container = "one", "two"
	other := statetest.On(statetest.WithClaim(statetest.Pod("default", "q", "q-1", "app"), "app", "q-app"), "b")
	objects := []runtime.Object{
		a, b, c, statetest.Slice(a, statetest.Cores(2)...), statetest.Slice(b, statetest.Cores(1)...), p, first, second, other,
		statetest.Claim(p, "p-one", "one", "a", 0, 601_000), statetest.Claim(p, "p-two", "two", "a", 1, 501_000),
	}
	s := statetest.Build(objects...)
	for what, says := range map[[2]string]string{
		{"p-1", "b"}: "not all of them together", {"p-1", "c"}: "publishes no cores", {"p-1", "gone"}: "publishes no cores", {"nobody", "b"}: "nothing of the pod is governed",
		{"q-1", "a"}: "nothing of the pod is governed",
	} {
		if why := s.NoDestination(types.UID(what[0]), what[1]); !strings.Contains(why, says) {
			t.Errorf("%v: %q, want %q", what, why, says)
		}
	}
	full := statetest.Build(append(objects, statetest.McKube("default", "q", "q", "Low", 50, 50), statetest.Claim(other, "q-app", "app", "b", 0, 501_000))...)
	if why := full.NoDestination("p-1", "b"); !strings.HasPrefix(why, "container one: it needs 60.") || !strings.Contains(why, "core 0 of node b") {
		t.Errorf("%q, want what is missing for the first container", why)
	}
}

func TestDestinationsOfSeveral(t *testing.T) {
	t.Parallel()
	a, b := statetest.Node("a", "a-1"), statetest.Node("b", "b-1")
	objects := []runtime.Object{a, b, statetest.Slice(a, statetest.Cores(3)...), statetest.Slice(b, statetest.Cores(2)...)}
	for i, name := range []string{"p", "q", "r"} {
		p := statetest.On(statetest.WithClaim(statetest.Pod("default", name, types.UID(name), "app"), "app", name), "a")
		objects = append(objects, p, statetest.McKube("default", name, name, "Low", 50, 50), statetest.Claim(p, name, "app", "a", i, 501_000))
	}
	s := statetest.Build(objects...)
	anywhere := func(types.UID, *state.NodeView) bool { return true }
	two, ok := s.Destinations([]types.UID{"p", "q"}, anywhere)
	if !ok || two["p"].Node != "b" || two["q"].Node != "b" || two["p"].Cores["p/app"] == two["q"].Cores["q/app"] {
		t.Errorf("%+v %t, want a core of b for each", two, ok)
	}
	if three, ok := s.Destinations([]types.UID{"p", "q", "r"}, anywhere); ok {
		t.Errorf("%+v: b has two cores", three)
	}
	if d, ok := s.Destinations([]types.UID{"p", "q"}, func(uid types.UID, _ *state.NodeView) bool { return uid != "q" }); ok {
		t.Errorf("%+v: q may not go there", d)
	}
	if d, ok := s.Destinations([]types.UID{"p", "nobody"}, anywhere); ok {
		t.Errorf("%+v: one is not there", d)
	}
}

func TestOwned(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]bool{"": false, "ReplicaSet": true, "DaemonSet": false, "Node": false, "StatefulSet": true} {
		p := statetest.Pod("default", "p", "p-1", "app")
		if kind != "" {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "o", UID: "o", Controller: ptr.To(true)}}
		}
		view, _ := statetest.Build(p).Pod("p-1")
		if view.Owned != want || view.Remade != (kind != "") {
			t.Errorf("of %q: owned is %t, made again %t", kind, view.Owned, view.Remade)
		}
	}
}

// A pod that a McKube governs by name alone loses its budget when it moves, unless its replacement has the same name.
func TestLosesBudget(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{"": "m", "ReplicaSet": "m", "Job": "m", "StatefulSet": ""} {
		p := statetest.Pod("default", "p", "p-1", "app")
		p.Labels["app"] = "p"
		if kind != "" {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "o", UID: "o", Controller: ptr.To(true)}}
		}
		m := statetest.McKube("default", "m", "p", "High", 10, 10)
		view, _ := statetest.Build(p, m).Pod("p-1")
		if got := view.LosesBudget(); (got != "") != (want != "") || want != "" && !strings.HasPrefix(got, "McKube m governs the pod by its name") {
			t.Errorf("of %q by name: %q", kind, got)
		}
		view, _ = statetest.Build(p, statetest.Selecting(m, "p")).Pod("p-1")
		if got := view.LosesBudget(); got != "" || len(view.Governed) != 1 {
			t.Errorf("of %q by label: %q", kind, got)
		}
	}
}
