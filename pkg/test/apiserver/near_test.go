package apiserver_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

// Whatever is written, the next read tells what the API server would.
func TestNearIsNeverBehind(t *testing.T) {
	near, live := apiserver.Near(t, apiserver.Scheme(t)), apiserver.Client(t, apiserver.Scheme(t))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(near.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "near"}}))
	pod := func(i int) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "none"}}}}
		p.Namespace, p.Name = "near", fmt.Sprintf("pod-%d", i)
		return p
	}
	same := func(when string, opts ...client.ListOption) {
		t.Helper()
		var a, b corev1.PodList
		must(near.List(t.Context(), &a, opts...))
		must(live.List(t.Context(), &b, opts...))
		if !equality.Semantic.DeepEqual(a.Items, b.Items) {
			t.Fatalf("%s: the cache has %d pods, the API server %d: %v; %v", when, len(a.Items), len(b.Items), a.Items, b.Items)
		}
	}
	changes := []struct {
		name string
		do   func(p *corev1.Pod) error
	}{
		{"create", func(p *corev1.Pod) error { return near.Create(t.Context(), p) }},
		{"update", func(p *corev1.Pod) error {
			if err := near.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
				return err
			}
			p.Labels = map[string]string{"n": fmt.Sprint(rand.N(1000))}
			return near.Update(t.Context(), p)
		}},
		{"hold", func(p *corev1.Pod) error {
			return near.Patch(t.Context(), p, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":["test/hold"]}}`)))
		}},
		{"let go", func(p *corev1.Pod) error {
			if err := near.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
				return err
			}
			p.Finalizers = nil
			return near.Update(t.Context(), p)
		}},
		{"status", func(p *corev1.Pod) error {
			if err := near.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
				return err
			}
			p.Status.Message = fmt.Sprint(rand.N(1000))
			return near.Status().Update(t.Context(), p)
		}},
		{"bind", func(p *corev1.Pod) error {
			return near.SubResource("binding").Create(t.Context(), p, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "n"}})
		}},
		{"evict", func(p *corev1.Pod) error {
			return near.SubResource("eviction").Create(t.Context(), p, &policyv1.Eviction{})
		}},
		{"try to evict", func(p *corev1.Pod) error {
			return near.SubResource("eviction").Create(t.Context(), p, &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}})
		}},
		{"delete", func(p *corev1.Pod) error { return near.Delete(t.Context(), p, client.GracePeriodSeconds(0)) }},
		{"delete all", func(p *corev1.Pod) error {
			return near.DeleteAllOf(t.Context(), p, client.InNamespace("near"), client.GracePeriodSeconds(0))
		}},
	}
	for _, c := range changes[:4] { // each at least once, on one pod
		if err := c.do(pod(0)); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		same(c.name)
	}
	succeeded := map[string]int{}
	for i := range 400 {
		c := changes[rand.N(len(changes))]
		p := pod(rand.N(4))
		err := c.do(p)
		if err == nil {
			succeeded[c.name]++
		} else if !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
			t.Fatalf("%d: %s: %v", i, c.name, err)
		}
		same(c.name)
		same(c.name, client.MatchingFields{"spec.nodeName": "n"}, client.InNamespace("near"))
	}
	for _, c := range changes {
		if succeeded[c.name] == 0 {
			t.Errorf("%s never succeeded", c.name)
		}
	}
}
