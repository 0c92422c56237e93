package drain_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/cli/drain"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
	"github.com/mainspring-rt/mainspring/pkg/test/mortal"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

// site is an API server with a node. The test is the controller: it says what becomes of migrations, by pod.
type site struct {
	*testing.T
	api             client.WithWatch
	namespace, node string
	out             strings.Builder
	becomes         map[string]v1alpha1.MigrationPhase
	looks           int
	act             func(look int)
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, api: apiserver.Client(t, apiserver.Scheme(t)), becomes: map[string]v1alpha1.MigrationPhase{}, act: func(int) {}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "drain-"}}
	s.must(s.api.Create(t.Context(), namespace))
	s.namespace, s.node = namespace.Name, namespace.Name
	s.must(s.api.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node}}))
	t.Cleanup(func() {
		apiserver.Empty(t, s.api, &v1alpha1.PodMigrationList{}, &mcv1.McKubeList{}, &corev1.PodList{}, &corev1.NodeList{}, &policyv1.PodDisruptionBudgetList{})
	})
	return s
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *site) pod(name, owner string, change ...func(*corev1.Pod)) *corev1.Pod {
	s.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name, Labels: map[string]string{"app": name}}, Spec: corev1.PodSpec{
		NodeName: s.node, TerminationGracePeriodSeconds: ptr.To(int64(0)), Containers: []corev1.Container{{Name: "app", Image: "none"}},
	}}
	if owner != "" {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: owner, Name: "o", UID: "o", Controller: ptr.To(true)}}
	}
	for _, f := range change {
		f(p)
	}
	s.must(s.api.Create(s.Context(), p))
	p.Status.Phase = corev1.PodRunning
	s.must(s.api.Status().Update(s.Context(), p))
	return p
}

func (s *site) mckube(pod string, kind mcv1.MigrationKind) {
	s.Helper()
	s.must(s.api.Create(s.Context(), &mcv1.McKube{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: pod}, Spec: mcv1.McKubeSpec{
		Podname: pod, RTSettings: &mcv1.RTSettings{Period: 100_000, RuntimeLow: 10_000, RuntimeHi: 10_000}, Migration: &mcv1.Migration{Policy: kind},
	}}))
}

// drain looks at the cluster through a client that lets the controller act first.
func (s *site) drain() *drain.Drain {
	api := mortal.Guarded(s.api, func(call func() error) error {
		s.looks++
		s.control()
		s.act(s.looks)
		return call()
	}, mortal.Always)
	return &drain.Drain{Client: api, Clock: clock.RealClock{}, Out: &s.out, Node: s.node, Every: time.Millisecond, Farewell: 20 * time.Second}
}

// control does what the controller does: migrations come to their ends, the pods of those that succeed go, and what is aborted
// is undone.
func (s *site) control() {
	ctx := context.Background()
	list := &v1alpha1.PodMigrationList{}
	s.must(s.api.List(ctx, list, client.InNamespace(s.namespace)))
	for _, m := range list.Items {
		phase, known := s.becomes[m.Spec.PodName]
		switch {
		case m.Status.Phase.Over():
			continue
		case m.Spec.Abort:
			phase = v1alpha1.MigrationAborted
		case !known:
			continue
		}
		if phase == v1alpha1.MigrationSucceeded {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: m.Spec.PodName}}
			s.must(client.IgnoreNotFound(s.api.Delete(ctx, p, client.GracePeriodSeconds(0))))
		}
		m.Status.Phase, m.Status.Message = phase, "as the test says"
		m.Status.Target = &v1alpha1.MigrationEnd{Node: "elsewhere"}
		s.must(s.api.Status().Update(ctx, &m))
	}
}

func (s *site) pods() string {
	s.Helper()
	list := &corev1.PodList{}
	s.must(s.api.List(s.Context(), list, client.InNamespace(s.namespace)))
	var out []string
	for _, p := range list.Items {
		out = append(out, p.Name)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (s *site) cordoned() bool {
	s.Helper()
	n := &corev1.Node{}
	s.must(s.api.Get(s.Context(), client.ObjectKey{Name: s.node}, n))
	return n.Spec.Unschedulable
}

func (s *site) migrations() string {
	s.Helper()
	list := &v1alpha1.PodMigrationList{}
	s.must(s.api.List(s.Context(), list, client.InNamespace(s.namespace)))
	var out []string
	for _, m := range list.Items {
		out = append(out, fmt.Sprintf("%s:%s:%s", m.Spec.PodName, m.Spec.Trigger, m.Status.Phase))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (s *site) expect(what string, got, want any) {
	s.Helper()
	if got != want {
		s.Errorf("%s: got %q, want %q\n%s", what, got, want, s.out.String())
	}
}

func TestPodsMigrateAndTheRestIsEvicted(t *testing.T) {
	s := newSite(t)
	s.pod("web", "ReplicaSet")
	s.mckube(s.pod("control", "StatefulSet").Name, mcv1.MigrationRestart)
	s.mckube(s.pod("brain", "").Name, mcv1.MigrationCheckpoint)
	s.mckube(s.pod("fixed", "ReplicaSet").Name, mcv1.MigrationNever)
	s.pod("daemon", "DaemonSet")
	s.pod("bare", "")
	s.pod("refused", "ReplicaSet")
	for _, name := range []string{"web", "control", "brain"} {
		s.becomes[name] = v1alpha1.MigrationSucceeded
	}
	s.becomes["refused"] = v1alpha1.MigrationRefused
	d := s.drain()
	d.Allow.Ownerless = true
	if err := d.Run(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, s.out.String())
	}
	s.expect("pods", s.pods(), "daemon")
	s.expect("migrations", s.migrations(), "brain:Drain:Succeeded control:Drain:Succeeded refused:Drain:Refused web:Drain:Succeeded")
	s.expect("cordoned", s.cordoned(), true)
	for _, want := range []string{"is cordoned\n", "daemon stays: DaemonSet o would make it again", "is evicted, as its migration came to nothing: Refused",
		"pod " + s.namespace + "/web runs on node elsewhere", "is drained: 3 pods moved, 3 evicted"} {
		if !strings.Contains(s.out.String(), want) {
			t.Errorf("%q is not in\n%s", want, s.out.String())
		}
	}
}

// Where something would be lost nothing is done, and what would be done can be seen before.
func TestNothingIsDoneWhereSomethingWouldBeLost(t *testing.T) {
	s := newSite(t)
	s.pod("web", "ReplicaSet")
	s.pod("bare", "")
	s.pod("scratch", "ReplicaSet", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	})
	for name, run := range map[string]func(*drain.Drain) error{
		"run":  func(d *drain.Drain) error { return d.Run(t.Context()) },
		"plan": func(d *drain.Drain) error { return d.Plan(t.Context()) },
	} {
		err := run(s.drain())
		for _, want := range []string{"is left as it is", "bare: no controller owns it", "--force", "volume tmp (emptyDir)", "--delete-emptydir-data"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
	s.expect("cordoned", s.cordoned(), false)
	s.expect("migrations", s.migrations(), "")
	d := s.drain()
	d.Allow = drain.Allow{Ownerless: true, EmptyDir: true}
	s.out.Reset()
	s.must(d.Plan(t.Context()))
	ns := s.namespace
	s.expect("plan", s.out.String(), fmt.Sprintf("pod %s/bare evicts: no controller owns it\npod %s/scratch migrates\npod %s/web migrates\n", ns, ns, ns))
	s.expect("afterwards", s.pods()+" "+s.migrations(), "bare scratch web ")
	d.Node = "nowhere"
	if err := d.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "node nowhere not found") {
		t.Errorf("got %v", err)
	}
}

// A budget is waited for, as long as it takes.
func TestABudgetIsWaitedFor(t *testing.T) {
	s := newSite(t)
	s.mckube(s.pod("fixed", "ReplicaSet").Name, mcv1.MigrationNever)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "none"}, Spec: policyv1.PodDisruptionBudgetSpec{
		MaxUnavailable: ptr.To(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "fixed"}},
	}}
	s.must(s.api.Create(t.Context(), budget))
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation, ExpectedPods: 1, CurrentHealthy: 1, DesiredHealthy: 1}
	s.must(s.api.Status().Update(t.Context(), budget))
	s.act = func(int) {
		if strings.Contains(s.out.String(), "may not be evicted yet") && budget.UID != "" {
			s.must(s.api.Delete(context.Background(), budget))
			budget.UID = ""
		}
	}
	if err := s.drain().Run(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, s.out.String())
	}
	s.expect("pods", s.pods(), "")
}

// A pod of a McKube whose migration came to nothing is left where it is, unless it was given up.
func TestPodsOfMcKubesAreNotEvictedUnasked(t *testing.T) {
	s := newSite(t)
	s.mckube(s.pod("control", "ReplicaSet").Name, mcv1.MigrationRestart)
	s.becomes["control"] = v1alpha1.MigrationRolledBack
	err := s.drain().Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "control: RolledBack, to node elsewhere: as the test says; a pod of a McKube is evicted only with --evict-refused") {
		t.Errorf("got %v", err)
	}
	s.expect("pods", s.pods(), "control")
	d := s.drain()
	d.EvictRefused = true
	s.must(d.Run(t.Context()))
	s.expect("pods", s.pods(), "")
}

// What was asked for is aborted, and waited for; the migration of somebody else goes on.
func TestAnInterruptAbortsWhatHasNotCutOver(t *testing.T) {
	s := newSite(t)
	s.pod("web", "ReplicaSet")
	s.pod("db", "StatefulSet")
	s.pod("theirs", "ReplicaSet")
	s.must(s.api.Create(t.Context(), &v1alpha1.PodMigration{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "theirs"}, Spec: v1alpha1.PodMigrationSpec{PodName: "theirs"}}))
	s.becomes["db"] = v1alpha1.MigrationSucceeded
	ctx, interrupt := context.WithCancel(t.Context())
	s.act = func(int) {
		if strings.Contains(s.out.String(), "db runs on node elsewhere") {
			interrupt()
		}
	}
	err := s.drain().Run(ctx)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "stays cordoned (kubectl uncordon "+s.node+")") {
		t.Errorf("got %v\n%s", err, s.out.String())
	}
	s.expect("migrations", s.migrations(), "db:Drain:Succeeded theirs:Manual: web:Drain:Aborted")
	s.expect("pods", s.pods(), "theirs web")
	if !strings.Contains(s.out.String(), "theirs migrates already, by PodMigration theirs") {
		t.Error(s.out.String())
	}
	ended, cancel := context.WithTimeoutCause(t.Context(), 0, errors.New("it took longer than --timeout 1s"))
	defer cancel()
	if err := s.drain().Run(ended); err == nil {
		t.Error("it ran after its time")
	}
}
