package webhooks_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
	"github.com/mainspring-rt/mainspring/pkg/webhooks"
)

// running is a pod of a ReplicaSet on node n1, as its kubelet would report it.
func (s *stage) running(t *testing.T, name string, labels ...string) *corev1.Pod {
	t.Helper()
	p := labelled(pod("app"), labels...)
	p.Name, p.Spec.NodeName = name, "n1"
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs", Controller: ptr.To(true)}}
	s.mustCreate(t, p)
	p.Status.Phase = corev1.PodRunning
	if err := s.client.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	return p
}

// evict asks once: a client of Kubernetes would come again by itself as often as it is told to.
func (s *stage) evict(t *testing.T, p *corev1.Pod, options ...string) error {
	t.Helper()
	kube, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	e := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, DeleteOptions: &metav1.DeleteOptions{}}
	for _, o := range options {
		switch o {
		case "dry":
			e.DeleteOptions.DryRun = []string{metav1.DryRunAll}
		case "own":
			e.Annotations = map[string]string{v1alpha1.AnnotationMigration: "default/x"}
		}
	}
	return kube.CoreV1().RESTClient().Post().Namespace(p.Namespace).Resource("pods").Name(p.Name).SubResource("eviction").
		MaxRetries(0).Body(e).Do(t.Context()).Error()
}

func (s *stage) migrationsIn(t *testing.T, namespace string) []v1alpha1.PodMigration {
	t.Helper()
	list := &v1alpha1.PodMigrationList{}
	if err := s.client.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func (s *stage) refusesPolicies(t *testing.T) {
	err := s.client.Create(t.Context(), migrationPolicy(`pod.metadata.lables == null`))
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "did you mean labels?") {
		t.Errorf("%v", err)
	}
	s.mustCreate(t, migrationPolicy(`trigger == "Cost"`))
}

// migratesEvictions: evictions of a pod that may migrate wait, with a message and a time, until its migration is over.
func (s *stage) migratesEvictions(t *testing.T) {
	s.mustCreate(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	p := s.running(t, "web-evicted", "app", "web")
	s.soon(t, func() error { // until the cache shows it
		if err := s.evict(t, p, "dry"); err != nil {
			t.Fatalf("a dry run: %v", err)
		}
		if !strings.Contains(s.warnings.all(), "would be migrated") {
			return fmt.Errorf("warnings: %s", s.warnings.all())
		}
		return nil
	})
	if all := s.migrationsIn(t, "default"); len(all) != 0 {
		t.Errorf("a dry run makes %d migrations", len(all))
	}
	for range 2 {
		err := s.evict(t, p)
		status := apierrors.APIStatus(nil)
		if !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "is being migrated to another node by PodMigration eviction-"+string(p.UID)) {
			t.Fatalf("%v", err)
		}
		if status, _ = err.(apierrors.APIStatus); status.Status().Details == nil || status.Status().Details.RetryAfterSeconds != 2 {
			t.Errorf("%+v", status.Status().Details)
		}
	}
	if all := s.migrationsIn(t, "default"); len(all) != 1 || all[0].Name != webhooks.EvictionMigration(p.UID) || all[0].Spec.Trigger != v1alpha1.TriggerDrain { // by the user that runs the webhooks here
		t.Errorf("%+v", all)
	}
	other := s.running(t, "ungoverned")
	if err := s.evict(t, other); err != nil {
		t.Errorf("a pod that is not ours: %v", err)
	}
	own := s.running(t, "web-own", "app", "web")
	if err := s.evict(t, own, "own"); err != nil { // the executor's, by the user that runs the webhooks here
		t.Error(err)
	}
	if err := s.client.Delete(t.Context(), own, client.GracePeriodSeconds(0)); err != nil {
		t.Error(err)
	}
	s.drains(t, p)
}

// drains runs kubectl drain, which waits until the migration is over.
func (s *stage) drains(t *testing.T, p *corev1.Pod) {
	t.Helper()
	tools, err := toolchain.Ensure(t.Context(), os.Stderr, toolchain.Kubectl)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*eventually)
	defer cancel()
	drain := exec.CommandContext(ctx, tools[toolchain.Kubectl], "--kubeconfig", s.kubeconfig, "drain", "n1", "--pod-selector=app=web,sdv.com", "--timeout=100s", "--grace-period=1")
	output := &strings.Builder{}
	drain.Stdout, drain.Stderr = output, output
	if err := drain.Start(); err != nil {
		t.Fatal(err)
	}
	now := &corev1.Pod{}
	s.soon(t, func() error {
		n := &corev1.Node{}
		if err := s.client.Get(t.Context(), client.ObjectKey{Name: "n1"}, n); err != nil || !n.Spec.Unschedulable {
			return fmt.Errorf("the node is not cordoned: %w", err)
		}
		return nil
	})
	if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(p), now); err != nil || now.DeletionTimestamp != nil {
		t.Fatalf("the pod went before it was migrated: %v, %s", err, output)
	}
	m := s.migrationsIn(t, "default")[0]
	m.Status.Phase, m.Status.Message = v1alpha1.MigrationRolledBack, "no node takes it"
	if err := s.client.Status().Update(t.Context(), &m); err != nil {
		t.Fatal(err)
	}
	s.soon(t, func() error { // there is no kubelet to end it
		if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(p), now); err != nil || now.DeletionTimestamp == nil {
			return fmt.Errorf("it stays: %w", err)
		}
		return s.client.Delete(t.Context(), p, client.GracePeriodSeconds(0))
	})
	if err := drain.Wait(); err != nil || !strings.Contains(output.String(), "is over (RolledBack): no node takes it") || !strings.Contains(output.String(), "node/n1 drained") {
		t.Errorf("%v: %s", err, output)
	}
}

// letsEvictionsPass: nothing answers.
func (s *stage) letsEvictionsPass(t *testing.T) {
	p := labelled(pod("app"))
	p.Name, p.Spec.NodeName = "evicted-in-silence", "n1"
	s.mustCreate(t, p)
	if err := s.evict(t, p); err != nil {
		t.Error(err)
	}
	if err := s.client.Create(t.Context(), migrationPolicy(`true`)); err == nil {
		t.Error("a policy that nobody has read is written")
	}
}
