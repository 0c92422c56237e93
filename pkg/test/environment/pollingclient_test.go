package environment

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// podRecord is a record of pods alone.
type podRecord struct {
	changes int
	broken  bool // no watch is open
}

func (r *podRecord) Changes(kind schema.GroupVersionKind) (int, bool) {
	return r.changes, kind == corev1.SchemeGroupVersion.WithKind("Pod") && !r.broken
}

// asked counts the reads that reach the API server.
func asked(reads *int) client.WithWatch {
	return interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			*reads++
			return c.Get(ctx, key, o, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			*reads++
			return c.List(ctx, list, options...)
		},
	})
}

func TestARepeatedReadAsksOnlyAfterAChange(t *testing.T) {
	ctx, reads, record, a := t.Context(), 0, &podRecord{}, &answers{}
	direct := asked(&reads)
	c := a.client(direct)
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a", Labels: map[string]string{"name": name}}}
	}
	list := func(want int, options ...client.ListOption) func() {
		return func() {
			t.Helper()
			pods := &corev1.PodList{}
			if err := c.List(ctx, pods, options...); err != nil || len(pods.Items) != want {
				t.Errorf("%d pods, want %d: %v", len(pods.Items), want, err)
			}
		}
	}
	get := func(name string, found bool) func() {
		return func() {
			t.Helper()
			o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: name}} // a read that finds nothing leaves it
			switch err := c.Get(ctx, client.ObjectKey{Namespace: "a", Name: name}, o); {
			case found && (err != nil || o.Name != name):
				t.Errorf("%q instead of %q: %v", o.Name, name, err)
			case !found && (!apierrors.IsNotFound(err) || o.Name != "" || o.Namespace != name):
				t.Errorf("%s is not there, and the answer is %s/%s: %v", name, o.Namespace, o.Name, err)
			}
			o.Name, o.Namespace = "changed", "by its reader"
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	nodes := func() { must(c.List(ctx, &corev1.NodeList{})) }
	for _, step := range []struct {
		what   string
		before func()
		read   func()
		asks   bool
	}{
		{what: "no spec runs", read: list(0), asks: true},
		{what: "no spec runs, again", read: list(0), asks: true},
		{what: "the first read of a spec", before: func() { a.follow(record) }, read: list(0), asks: true},
		{what: "the same", read: list(0)},
		{what: "what is not there", read: get("x", false), asks: true},
		{what: "what is not there, again", read: get("x", false)},
		{what: "after a write through the client", before: func() { must(c.Create(ctx, pod("x"))) }, read: list(1), asks: true},
		{what: "what is there now", read: get("x", true), asks: true},
		{what: "what is there now, again", read: get("x", true)},
		{what: "another, and no watch has told of it", before: func() { must(direct.Create(ctx, pod("y"))) }, read: list(1)},
		{what: "a watch has told of it", before: func() { record.changes++ }, read: list(2), asks: true},
		{what: "a selector is another question", read: list(1, client.MatchingLabels{"name": "y"}), asks: true},
		{what: "another selector, too", read: list(1, client.MatchingLabels{"name": "x"}), asks: true},
		{what: "that selector again", read: list(1, client.MatchingLabels{"name": "x"})},
		{what: "a namespace is another question", read: list(0, client.InNamespace("b")), asks: true},
		{what: "a program ran", before: a.forget, read: list(2), asks: true},
		{what: "the watch is lost", before: func() { record.broken = true }, read: list(2), asks: true},
		{what: "the watch is lost, again", read: list(2), asks: true},
		{what: "a kind that is not recorded", read: nodes, asks: true},
		{what: "a kind that is not recorded, again", read: nodes, asks: true},
	} {
		if step.before != nil {
			step.before()
		}
		n := reads
		step.read()
		if asks := reads > n; asks != step.asks {
			t.Errorf("%s: asks the API server: %t, want %t", step.what, asks, step.asks)
		}
	}
}
