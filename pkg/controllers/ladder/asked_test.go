package ladder_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// The planner asks about a node only if the node matters: it asks once about a pod that goes to every node the same way, or to
// none.
func TestNodesAreAskedAboutOnlyWhereThatMatters(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		way  ladder.Passage
		each bool
	}{
		"the same everywhere":        {ladder.Passage{Anywhere: true}, false},
		"anew wherever it goes":      {ladder.Passage{Anywhere: true, Anew: "its node cannot write it"}, false},
		"nowhere":                    {ladder.Passage{Veto: "its node cannot write it"}, false},
		"with its state, where able": {ladder.Passage{}, true},
	} {
		w := contendedCores()
		for _, node := range []string{"b", "c", "d"} {
			w.node(node, 1)
		}
		p := w.planner("a", ladder.SourceOverruns, "high")
		asked := map[string]bool{}
		p.Passage = func(pod *state.PodView, node string) ladder.Passage {
			asked[node] = true
			return c.way
		}
		p.Choose()
		if !asked[""] || asked["b"] != c.each || !c.each && len(asked) > 1 {
			t.Errorf("%s: asked about %v", name, asked)
		}
	}
}

// A plan reads the free resources of a node once, however often it asks for them.
func TestANodeIsReadOnceForAPlan(t *testing.T) {
	t.Parallel()
	w := contendedCores()
	b := w.node("b", 1)
	b.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3"), corev1.ResourcePods: resource.MustParse("10")}
	w.run("there", "b", "Low", 10, 10, 0)
	w.run("done", "b", "Low", 10, 10, 0)
	w.pods["done"].Status.Phase = corev1.PodSucceeded
	var objects []client.Object
	for _, pod := range w.pods {
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		objects = append(objects, pod)
	}
	reads := map[string]int{}
	c := fake.NewClientBuilder().WithObjects(append(objects, b)...).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				reads[fmt.Sprintf("%T %s", o, key.Name)]++
				return c.Get(ctx, key, o, opts...)
			},
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				reads[fmt.Sprintf("%T", list)]++
				return c.List(ctx, list, opts...)
			},
		}).Build()
	s := w.snapshot()
	view := func(name string) *state.PodView {
		v, _ := s.Pod(w.pods[name].UID)
		return v
	}
	fits := ladder.Fits(t.Context(), c)
	gone := &state.PodView{UID: "gone", Namespace: "default", Name: "gone"}
	got := []bool{
		fits("b", view("small")), fits("b", view("small"), view("large")), fits("b", view("small"), view("large"), view("high")),
		fits("b", gone), fits("nowhere", view("small")), fits("nowhere"), fits("b", view("large")),
	}
	if !slices.Equal(got, []bool{true, true, false, false, false, false, true}) {
		t.Errorf("it fits: %v", got)
	}
	for what, times := range reads {
		if times != 1 {
			t.Errorf("%s was read %d times", what, times)
		}
	}
	if len(reads) != 7 { // two nodes, four pods, and the list of those on b
		t.Errorf("read were %v", reads)
	}
}
