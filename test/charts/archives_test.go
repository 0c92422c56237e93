package charts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/localplane"
)

// Nobody but the controller makes containers of what was in the memory of others, and owners whose pod is on its way make none.
func TestWhoMakesPodsOfArchives(t *testing.T) {
	p := startPlane(t, localplane.Options{ControllerManager: true})
	p.install(t, release(crdsChart, nil))
	p.expectEstablished(t)
	p.install(t, release(mainChart, nil))
	as := rest.CopyConfig(p.RESTConfig())
	as.Impersonate = rest.ImpersonationConfig{UserName: fmt.Sprintf("system:serviceaccount:%s:mainspring", namespace), Groups: []string{"system:serviceaccounts", "system:masters"}}
	controller, err := client.New(as, client.Options{Scheme: p.client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	const archive = "mainspring.local/checkpoint/0a-1b:app"
	made := func(name, image string, change ...func(*corev1.Pod)) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: image}}}}
		for _, f := range change {
			f(pod)
		}
		return pod
	}
	soon(t, func(g gomega.Gomega) {
		g.Expect(p.client.Create(t.Context(), made("ordinary", "app:1"))).To(gomega.Succeed())
	})
	refused := func(err error) error {
		if err == nil {
			return errAllowed
		}
		if !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'mainspring-archives'") {
			return err
		}
		return nil
	}
	soon(t, func(g gomega.Gomega) {
		g.Expect(refused(p.client.Create(t.Context(), made("thief", archive), client.DryRunAll))).To(gomega.Succeed(), "anybody else")
	})
	for _, id := range []string{"sha256:3f", "sha256:" + strings.Repeat("3f", 32)} {
		if err := refused(p.client.Create(t.Context(), made("thief", id), client.DryRunAll)); err != nil {
			t.Errorf("by ID %s: %v", id, err)
		}
	}
	init := func(pod *corev1.Pod) { pod.Spec.InitContainers = []corev1.Container{{Name: "first", Image: archive}} }
	if err := refused(controller.Create(t.Context(), made("first", "app:1", init), client.DryRunAll)); err != nil {
		t.Errorf("an init container: %v", err)
	}
	if err := controller.Create(t.Context(), made("copy", archive)); err != nil {
		t.Errorf("the controller: %v", err)
	}
	for _, name := range []string{"ordinary", "copy"} {
		pod := made(name, "")
		if err := p.client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			t.Fatal(err)
		}
		before := pod.DeepCopy()
		pod.Labels = map[string]string{"changed": "yes"}
		if err := p.client.Patch(t.Context(), pod, client.MergeFrom(before)); err != nil {
			t.Errorf("a label of %s: %v", name, err)
		}
		before = pod.DeepCopy()
		pod.Spec.Containers[0].Image = "mainspring.local/checkpoint/other:app"
		if err := refused(p.client.Patch(t.Context(), pod, client.MergeFrom(before))); err != nil {
			t.Errorf("the image of %s: %v", name, err)
		}
	}
}
