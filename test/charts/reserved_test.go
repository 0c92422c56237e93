package charts_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/localplane"
)

// decisions are the annotations of pods and McKubes by which the controller goes on with what it decided, and what a tenant would write there.
var decisions = map[string]string{
	mcv1.AnnotationPreempting:         `{"node":"n1","core":1,"deadline":"2099-01-01T00:00:00Z"}`,
	mcv1.AnnotationPreemptionRest:     "0 until 2026-01-01T00:00:00Z",
	mcv1.AnnotationReplaces:           "11111111-1111-4111-8111-111111111111",
	mcv1.AnnotationConfigured:         "true",
	mcv1.AnnotationFilledNode:         "n1",
	mcv1.AnnotationLeftLate:           "[]",
	v1alpha1.AnnotationAction:         "migrate-1",
	v1alpha1.AnnotationPinned:         "n1",
	v1alpha1.AnnotationMigrationCause: "rtpressure/node/n1",
	"mckube.io/uncounted":             "true",
}

// TestDecisionsAreTheControllersToWrite: who may write pods and McKubes of a namespace can neither forge, change nor delete what the
// controller remembers there, on any way that leads to the object, with label sdv.com and without. What is a tenant's own stays so.
func TestDecisionsAreTheControllersToWrite(t *testing.T) {
	p := startPlane(t, localplane.Options{})
	p.install(t, release(crdsChart, nil))
	p.expectEstablished(t)
	p.install(t, release(mainChart, object{"webhook": object{"enabled": false}}))
	p.apply(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}})
	p.grant(t, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "tenant"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"", v1alpha1.Group, mcv1.SchemeGroupVersion.Group},
			Resources: []string{"pods", "pods/status", "pods/binding", "mckubes", "mckubes/status", "podmigrations", "rtactions", "podtemplates"},
			Verbs:     []string{"create", "update", "patch", "get", "delete"},
		}},
	}, "tenant", controllerUser)
	tenant, controller := p.as(t, "tenant"), p.as(t, controllerUser, "system:serviceaccounts")

	soon(t, func(g gomega.Gomega) {
		g.Expect(reservedOnly(tenant.Create(t.Context(), decided(plainPod("probe", nil), mcv1.AnnotationPreempting), client.DryRunAll))).To(gomega.Succeed())
	})
	for _, labels := range []map[string]string{nil, {mcv1.LabelRT: "x"}} {
		name := fmt.Sprint("pod-", len(labels))
		there := plainPod(name, labels)
		p.apply(t, there)
		marked := decided(plainPod("marked-"+name, labels), mcv1.AnnotationReplaces)
		if err := controller.Create(t.Context(), marked); err != nil {
			t.Fatalf("the controller: %v", err)
		}
		for key := range decisions {
			if err := reservedOnly(tenant.Create(t.Context(), decided(plainPod("new", labels), key), client.DryRunAll)); err != nil {
				t.Errorf("creating a pod with %s, labels %v: %v", key, labels, err)
			}
			patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, decisions[key]))
			if err := reservedOnly(tenant.Patch(t.Context(), there.DeepCopy(), patch)); err != nil {
				t.Errorf("writing %s, labels %v: %v", key, labels, err)
			}
			if err := reservedOnly(tenant.Status().Patch(t.Context(), there.DeepCopy(), patch)); err != nil {
				t.Errorf("writing %s by the status, labels %v: %v", key, labels, err)
			}
			if err := controller.Patch(t.Context(), there.DeepCopy(), patch, client.DryRunAll); err != nil {
				t.Errorf("the controller writes %s: %v", key, err)
			}
		}
		for _, text := range []string{`{"metadata":{"annotations":{"mckube.io/replaces":null}}}`, `{"metadata":{"annotations":{"mckube.io/replaces":"another"}}}`, `{"metadata":{"labels":{"mckube.io/held-for":"x"}}}`} {
			if err := reservedOnly(tenant.Patch(t.Context(), marked.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(text)))); err != nil {
				t.Errorf("%s, labels %v: %v", text, labels, err)
			}
		}
		binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{mcv1.AnnotationPreempting: "{}"}}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
		if err := reservedOnly(tenant.SubResource("binding").Create(t.Context(), there.DeepCopy(), binding)); err != nil {
			t.Errorf("binding, labels %v: %v", labels, err)
		}
		for _, text := range []string{`{"metadata":{"annotations":{"mckube.io/rt-period":"1000","example.com/mine":"1"},"labels":{"mine":"x"}}}`, `{"metadata":{"finalizers":["example.com/x"]}}`} {
			if err := tenant.Patch(t.Context(), marked.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(text)), client.DryRunAll); err != nil {
				t.Errorf("what is the tenant's own, %s: %v", text, err)
			}
		}
	}
	m := mckubeNamed("m")
	p.apply(t, m)
	for key := range decisions {
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, decisions[key]))
		if err := reservedOnly(tenant.Patch(t.Context(), m.DeepCopy(), patch)); err != nil {
			t.Errorf("writing %s of a McKube: %v", key, err)
		}
		if err := reservedOnly(tenant.Create(t.Context(), decided(moving(""), key), client.DryRunAll)); err != nil {
			t.Errorf("creating a PodMigration with %s: %v", key, err)
		}
	}
	if err := tenant.Create(t.Context(), moving(""), client.DryRunAll); err != nil {
		t.Errorf("a PodMigration of a tenant: %v", err)
	}
}

// reservedOnly is nil where the policy refused.
func reservedOnly(err error) error {
	switch {
	case err == nil:
		return errors.New("allowed")
	case strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'mainspring-reserved'") && strings.Contains(err.Error(), "only the controller writes mckube.io/"):
		return nil
	}
	return err
}

func decided[T client.Object](o T, key string) T {
	o.SetAnnotations(map[string]string{key: decisions[key]})
	return o
}

func plainPod(name string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "a"}}},
	}
}

func mckubeNamed(name string) *mcv1.McKube {
	return &mcv1.McKube{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       mcv1.McKubeSpec{Podname: name, RTSettings: &mcv1.RTSettings{Period: 10_000, RuntimeLow: 1_000, RuntimeHi: 2_000}},
	}
}
