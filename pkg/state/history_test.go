package state_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// event is a change of one object; gone says that it was deleted.
type event struct {
	object runtime.Object
	gone   bool
}

// history is what happened to a small cluster, kind by kind: informers of different kinds know nothing
// of each other, but each hands over its events in order.
type history struct {
	t       *rapid.T
	births  int
	objects map[string]runtime.Object // by kind and name
	events  map[string][]event        // by kind
}

func (h *history) uid(prefix string) types.UID {
	h.births++
	return types.UID(fmt.Sprintf("%s-%03d", prefix, h.births))
}

func (h *history) put(kind, name string, o runtime.Object) {
	h.objects[kind+name] = o
	h.events[kind] = append(h.events[kind], event{object: o})
}

func (h *history) remove(kind, name string) {
	if o, ok := h.objects[kind+name]; ok {
		delete(h.objects, kind+name)
		h.events[kind] = append(h.events[kind], event{object: o, gone: true})
	}
}

// unseen says that an object was deleted and made again between two looks at the API: the informer tells
// of an update, to an object of another UID.
func (h *history) unseen() bool { return rapid.IntRange(0, 4).Draw(h.t, "unseen") == 0 }

// existing draws the name of an object, and whether there is one.
func existing[T runtime.Object](h *history, kind, name string) (T, bool) {
	o, ok := h.objects[kind+name].(T)
	return o, ok
}

var (
	namespaces = rapid.SampledFrom([]string{"a", "b"})
	small      = rapid.IntRange(0, 2)
	kinds      = rapid.SampledFrom([]string{"node", "slice", "rtnode", "pod", "mckube", "claim"})
)

func (h *history) step() {
	kind := kinds.Draw(h.t, "kind")
	node := fmt.Sprintf("node-%d", small.Draw(h.t, "node"))
	namespace := namespaces.Draw(h.t, "namespace")
	pod := fmt.Sprintf("pod-%d", small.Draw(h.t, "pod"))
	name := map[string]string{"node": node, "slice": node, "rtnode": node, "pod": namespace + pod, "mckube": namespace + pod, "claim": namespace + pod}[kind]
	if rapid.IntRange(0, 4).Draw(h.t, "fate") == 0 {
		h.remove(kind, name)
		return
	}
	switch kind {
	case "node":
		h.stepNode(node)
	case "slice":
		if n, ok := existing[*corev1.Node](h, "node", node); ok {
			h.put(kind, name, statetest.Slice(n, statetest.Cores(1+small.Draw(h.t, "cores"))...))
		}
	case "rtnode":
		h.stepRTNode(node, namespace+pod)
	case "pod":
		h.stepPod(namespace, pod, node)
	case "mckube":
		h.stepMcKube(namespace, pod)
	case "claim":
		h.stepClaim(namespace+pod, node)
	}
}

func (h *history) stepNode(node string) {
	n := statetest.Node(node, h.uid("node"))
	if old, ok := existing[*corev1.Node](h, "node", node); ok && !h.unseen() {
		n.UID = old.UID
	}
	n.Spec.Unschedulable = small.Draw(h.t, "cordoned") == 0
	h.put("node", node, n)
}

func (h *history) stepRTNode(node, pod string) {
	n, ok := existing[*corev1.Node](h, "node", node)
	if !ok {
		return
	}
	r := statetest.RTNode(n)
	if p, ok := existing[*corev1.Pod](h, "pod", pod); ok {
		r.Spec.Servers = []v1alpha1.RTServer{statetest.RTServer(p, "app", int32(small.Draw(h.t, "core")))}
	}
	alive := rapid.SampledFrom([]metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse}).Draw(h.t, "alive")
	r.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAgentAlive, Status: alive}}
	h.put("rtnode", node, r)
}

func (h *history) stepPod(namespace, pod, node string) {
	p := statetest.WithClaim(statetest.Pod(namespace, pod, h.uid("pod"), "app", "side"), "app", pod+"-claim")
	if old, ok := existing[*corev1.Pod](h, "pod", namespace+pod); ok && !h.unseen() {
		p.UID, p.Spec.NodeName = old.UID, old.Spec.NodeName
	}
	if p.Spec.NodeName == "" && rapid.Bool().Draw(h.t, "bind") {
		p = statetest.On(p, node)
	}
	p.Labels["tier"] = rapid.SampledFrom([]string{"x", "y"}).Draw(h.t, "tier")
	if rapid.IntRange(0, 5).Draw(h.t, "finished") == 0 {
		p.Status.Phase = corev1.PodSucceeded
	}
	if rapid.IntRange(0, 5).Draw(h.t, "preempting") == 0 {
		p.Annotations = map[string]string{mcv1.AnnotationPreempting: `{"node":"node-0","core":1}`}
	}
	h.put("pod", namespace+pod, p)
}

func (h *history) stepMcKube(namespace, pod string) {
	m := statetest.McKube(namespace, "m-"+pod, pod, "Middle", 10, 20+10*int64(small.Draw(h.t, "budget")))
	m.Spec.Container = rapid.SampledFrom([]string{"app", "side", "none", ""}).Draw(h.t, "container")
	if rapid.Bool().Draw(h.t, "selects") {
		m.Spec.Podname = ""
		m.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": rapid.SampledFrom([]string{"x", "y"}).Draw(h.t, "tier")}}
	}
	m.CreationTimestamp = metav1.NewTime(statetest.Birth.AddDate(0, 0, small.Draw(h.t, "age")))
	m.UID = h.uid("mck")
	if old, ok := existing[*mcv1.McKube](h, "mckube", namespace+pod); ok && rapid.Bool().Draw(h.t, "edited") {
		m.UID = old.UID
	}
	if small.Draw(h.t, "deleting") == 0 {
		m.DeletionTimestamp = &m.CreationTimestamp
	}
	h.put("mckube", namespace+pod, m)
}

func (h *history) stepClaim(pod, node string) {
	p, ok := existing[*corev1.Pod](h, "pod", pod)
	if !ok {
		return
	}
	if rapid.Bool().Draw(h.t, "waiting") {
		node = ""
	}
	c := statetest.Claim(p, p.Name+"-claim", "app", node, small.Draw(h.t, "core"), rt.PPM(100_000*(1+small.Draw(h.t, "share"))))
	if more := small.Draw(h.t, "more"); more > 0 {
		c.Name, c.UID, pod = p.Name+"-more", c.UID+"-more", pod+"-more"
		c.CreationTimestamp = metav1.NewTime(statetest.Birth.AddDate(0, 0, more))
	}
	if h.unseen() {
		c.UID = h.uid("claim")
	}
	h.put("claim", pod, c)
}

// interleave hands the events over in an order that respects only the order within each kind.
func (h *history) interleave(to func(event)) {
	left := map[string][]event{}
	var open []string
	for _, kind := range []string{"node", "slice", "rtnode", "pod", "mckube", "claim"} {
		if len(h.events[kind]) > 0 {
			left[kind] = h.events[kind]
			open = append(open, kind)
		}
	}
	for len(open) > 0 {
		kind := rapid.SampledFrom(open).Draw(h.t, "next")
		to(left[kind][0])
		if left[kind] = left[kind][1:]; len(left[kind]) == 0 {
			open = slices.DeleteFunc(open, func(k string) bool { return k == kind })
		}
	}
}

// Whatever happened, in whatever order it was heard of, and whenever the first lists were complete: the
// snapshot is the one that is built from the objects that are there.
func TestTheSnapshotFollowsFromTheObjectsAlone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := &history{t: t, objects: map[string]runtime.Object{}, events: map[string][]event{}}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			h.step()
		}
		store := state.New(state.Options{})
		total := 0
		for _, list := range h.events {
			total += len(list)
		}
		complete := rapid.IntRange(0, total).Draw(t, "complete")
		heard := 0
		h.interleave(func(e event) {
			if heard == complete {
				store.Complete()
			}
			heard++
			do := store.Update
			if e.gone {
				do = store.Delete
			}
			if err := do(e.object); err != nil {
				t.Fatal(err)
			}
		})
		store.Complete()
		var objects []runtime.Object
		for _, o := range h.objects {
			objects = append(objects, o)
		}
		got, want := store.Snapshot().Dump(), statetest.Build(objects...).Dump()
		if !slices.Equal(got, want) {
			t.Fatalf("heard:\n%s\nbuilt:\n%s", difference(got, want), difference(want, got))
		}
	})
}

// difference is what a has and b has not.
func difference(a, b []string) string {
	out := ""
	for _, line := range a {
		if !slices.Contains(b, line) {
			out += "  " + line + "\n"
		}
	}
	return out
}

// Reservations come and go without deriving the node anew; what is left is as if it had been.
func TestReservationsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		objects := drawCluster(t)
		store, err := state.Build(state.Options{}, objects...)
		if err != nil {
			t.Fatal(err)
		}
		clean := store.Snapshot().Dump()
		var held []string
		for i := range rapid.IntRange(1, 20).Draw(t, "reservations") {
			s := drawServer(t)
			s.ID = fmt.Sprintf("new-%d", i)
			best, gates := store.Snapshot().BestCore(s)
			if len(gates) > 0 {
				continue
			}
			if err := store.Reserve(state.Reservation{Key: s.ID, Node: best.Node, Core: best.Core, Server: s, Until: statetest.Birth.AddDate(100, 0, 0)}); err != nil {
				t.Fatal(err)
			}
			held = append(held, s.ID)
			if rapid.IntRange(0, 3).Draw(t, "release") == 0 {
				store.Release(held[0])
				held = held[1:]
			}
		}
		quick := store.Snapshot().Dump()
		for _, o := range objects {
			if n, ok := o.(*corev1.Node); ok {
				if err := store.Update(n); err != nil { // derives the whole node
					t.Fatal(err)
				}
			}
		}
		if whole := store.Snapshot().Dump(); !slices.Equal(quick, whole) {
			t.Fatalf("quick:\n%s\nwhole:\n%s", difference(quick, whole), difference(whole, quick))
		}
		for _, key := range held {
			store.Release(key)
		}
		if left := store.Snapshot().Dump(); !slices.Equal(left, clean) {
			t.Fatalf("left behind:\n%s\nmissing:\n%s", difference(left, clean), difference(clean, left))
		}
	})
}
