package cli_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cli"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

// movable is a pod in a namespace of its own, and a controller that ends every migration there as end says. It gives the
// arguments that every command needs.
func movable(t *testing.T, end func(*v1alpha1.PodMigration) v1alpha1.MigrationPhase) (client.WithWatch, string, []string) {
	t.Helper()
	api := apiserver.Client(t, apiserver.Scheme(t))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "cli-"}}
	create := func(o client.Object) {
		if err := api.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	create(namespace)
	create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: namespace.Name}})
	create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "web", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "u", Controller: ptr.To(true)},
	}}, Spec: corev1.PodSpec{NodeName: namespace.Name, Containers: []corev1.Container{{Name: "app", Image: "none"}}}})
	changes, err := api.Watch(t.Context(), &v1alpha1.PodMigrationList{}, client.InNamespace(namespace.Name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(changes.Stop)
	go func() {
		for e := range changes.ResultChan() {
			m, ok := e.Object.(*v1alpha1.PodMigration)
			if phase := v1alpha1.MigrationPhase(""); ok && e.Type != watch.Deleted && !m.Status.Phase.Over() {
				if phase = end(m); phase != "" {
					m.Status.Phase, m.Status.Target = phase, &v1alpha1.MigrationEnd{Node: "b"}
					_ = api.Status().Update(context.Background(), m) // the next change tries again
				}
			}
		}
	}()
	plane, err := apiserver.Shared()
	if err != nil {
		t.Fatal(err)
	}
	return api, namespace.Name, []string{"--kubeconfig", plane.Kubeconfig(), "--interval", "10ms"}
}

func ends(phase v1alpha1.MigrationPhase) func(*v1alpha1.PodMigration) v1alpha1.MigrationPhase {
	return func(*v1alpha1.PodMigration) v1alpha1.MigrationPhase { return phase }
}

// The exit code tells whether the pod runs elsewhere as it should.
func TestMigrateWaitsAndTellsWhatBecameOfIt(t *testing.T) {
	for phase, want := range map[v1alpha1.MigrationPhase]int{
		v1alpha1.MigrationSucceeded: 0, v1alpha1.MigrationSucceededWithoutState: 1, v1alpha1.MigrationRolledBack: 1, v1alpha1.MigrationRefused: 1,
	} {
		_, namespace, flags := movable(t, ends(phase))
		code, out, err := run(append([]string{"migrate", "web", "-n", namespace, "--wait"}, flags...)...)
		if code != want || !strings.Contains(out, string(phase)) {
			t.Errorf("%s: exit %d, %q, %q", phase, code, out, err)
		}
	}
	_, namespace, flags := movable(t, ends(""))
	if code, out, _ := run(append([]string{"migrate", "web", "-n", namespace}, flags...)...); code != 0 || !strings.Contains(out, "is created; follow it with kubectl get podmigration -n "+namespace) {
		t.Errorf("exit %d, %q", code, out)
	}
	if code, _, err := run(append([]string{"migrate", "web", "-n", namespace, "--to", "nowhere"}, flags...)...); code != 1 || !strings.Contains(err, "node nowhere not found") {
		t.Errorf("exit %d, %q", code, err)
	}
}

// A dry run leaves nothing behind, and no node cordoned.
func TestDryRunsOfMigrateAndDrain(t *testing.T) {
	api, namespace, flags := movable(t, func(m *v1alpha1.PodMigration) v1alpha1.MigrationPhase {
		if m.Spec.DryRun {
			return v1alpha1.MigrationDryRun
		}
		return v1alpha1.MigrationFailed
	})
	if code, out, err := run(append([]string{"migrate", "web", "-n", namespace, "--dry-run"}, flags...)...); code != 0 || !strings.Contains(out, "DryRun, to node b") {
		t.Errorf("exit %d, %q, %q", code, out, err)
	}
	if code, out, err := run(append([]string{"drain", namespace, "--dry-run"}, flags...)...); code != 0 || out != "pod "+namespace+"/web migrates\n" {
		t.Errorf("exit %d, %q, %q", code, out, err)
	}
	list, node := &v1alpha1.PodMigrationList{}, &corev1.Node{}
	if err := api.List(t.Context(), list, client.InNamespace(namespace)); err != nil || len(list.Items) > 0 {
		t.Errorf("%v, %v", err, list.Items)
	}
	if err := api.Get(t.Context(), client.ObjectKey{Name: namespace}, node); err != nil || node.Spec.Unschedulable {
		t.Errorf("%v, cordoned %t", err, node.Spec.Unschedulable)
	}
}

func TestDrainThatTakesTooLongIsAborted(t *testing.T) {
	api, namespace, flags := movable(t, func(m *v1alpha1.PodMigration) v1alpha1.MigrationPhase {
		if m.Spec.Abort {
			return v1alpha1.MigrationAborted
		}
		return ""
	})
	code, out, err := run(append([]string{"drain", namespace, "--timeout", "4s"}, flags...)...)
	if code != 1 || !strings.Contains(err, "stays cordoned") || !strings.Contains(err, "it took longer than --timeout 4s") || !strings.Contains(out, "web: Aborted") {
		t.Errorf("exit %d, %q, %q", code, out, err)
	}
	node := &corev1.Node{}
	if err := api.Get(t.Context(), client.ObjectKey{Name: namespace}, node); err != nil || !node.Spec.Unschedulable {
		t.Errorf("%v, cordoned %t", err, node.Spec.Unschedulable)
	}
}

// The time counts from the command on, whatever the migration waits for.
func TestMigrateThatTakesTooLongIsAborted(t *testing.T) {
	_, namespace, flags := movable(t, func(m *v1alpha1.PodMigration) v1alpha1.MigrationPhase {
		switch {
		case m.Spec.Timeout == nil || m.Spec.WaitTimeout == nil || m.Spec.Timeout.Duration != 2*time.Second || m.Spec.WaitTimeout.Duration != 2*time.Second:
			return v1alpha1.MigrationFailed
		case m.Spec.Abort:
			return v1alpha1.MigrationAborted
		}
		return ""
	})
	code, out, err := run(append([]string{"migrate", "web", "-n", namespace, "--wait", "--timeout", "2s"}, flags...)...)
	if code != 1 || !strings.Contains(out, "it took longer than --timeout 2s: aborting") || !strings.Contains(out, "web: Aborted") || err != "mainspring: it took longer than --timeout 2s\n" {
		t.Errorf("exit %d, %q, %q", code, out, err)
	}
}

// As the signal handler of the program does it.
func TestAnInterruptedMigrateAborts(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	_, namespace, flags := movable(t, func(m *v1alpha1.PodMigration) v1alpha1.MigrationPhase {
		interrupt()
		if m.Spec.Abort {
			return v1alpha1.MigrationAborted
		}
		return ""
	})
	var out, errs bytes.Buffer
	args := append([]string{"migrate", "web", "-n", namespace, "--wait"}, flags...)
	code := cli.Main(ctx, args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	if code != 1 || !strings.Contains(out.String(), "interrupted: aborting") || !strings.Contains(out.String(), "web: Aborted") || errs.String() != "mainspring: interrupted\n" {
		t.Errorf("exit %d, %q, %q", code, out.String(), errs.String())
	}
}
