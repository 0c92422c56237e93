package migration_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/mainspring-rt/mainspring/pkg/apis"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/migration"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/placement"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/informer"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// cluster is a control plane with Kubernetes' own scheduler and controllers, and with ours. Tests play the kubelets.
type cluster struct {
	testing.TB
	api client.WithWatch
	// asked are the requests that our controllers have made, but for watches and the queue's Lease.
	lock  sync.Mutex
	asked []string
	told  map[string]bool
}

// counted is the way to the API server on which requests are counted.
type counted struct {
	*cluster
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	if !r.URL.Query().Has("watch") && !strings.Contains(r.URL.Path, "/leases") {
		c.lock.Lock()
		c.asked = append(c.asked, r.Method+" "+r.URL.Path)
		c.lock.Unlock()
	}
	return c.next.RoundTrip(r)
}

// most is how many requests a migration may take at most.
const most = 18

// frugal expects that what was done since the last time took few requests, Events included.
func (c *cluster) frugal(t *testing.T) {
	t.Helper()
	list := c.requests()
	t.Logf("%d requests:\n%s", len(list), strings.Join(list, "\n"))
	if len(list) >= most {
		t.Errorf("%d requests are not fewer than %d", len(list), most)
	}
}

// requests that were made since the last time.
func (c *cluster) requests() []string {
	c.lock.Lock()
	defer c.lock.Unlock()
	out := c.asked
	c.asked = nil
	return out
}

// eventually bounds every wait; a busy machine takes long.
const eventually = 3 * time.Minute

func newCluster(t *testing.T) *cluster {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	options := localplane.Options{Scheduler: true, ControllerManager: true, NodeMonitorGracePeriod: time.Hour}
	var err error
	if options.Bin, err = toolchain.Ensure(t.Context(), os.Stderr, options.Tools()...); err != nil {
		t.Fatal(err)
	}
	plane, err := localplane.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plane.Stop() })
	crds, err := apis.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds {
		data, err := yaml.Marshal(crd)
		if err != nil {
			t.Fatal(err)
		}
		if err := plane.ApplyCRDs(t.Context(), data); err != nil {
			t.Fatal(err)
		}
	}
	config := plane.RESTConfig()
	config.QPS = -1
	c := &cluster{TB: t, told: map[string]bool{}}
	if c.api, err = client.NewWithWatch(config, client.Options{Scheme: apiserver.Scheme(t)}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		c.node(name)
	}
	ours := rest.CopyConfig(config)
	ours.Wrap(func(next http.RoundTripper) http.RoundTripper { return counted{c, next} })
	mgr, err := ctrl.NewManager(ours, ctrl.Options{
		Scheme: apiserver.Scheme(t), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.add(mgr)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = mgr.Start(ctx) }()
	go c.kubelets(ctx)
	t.Cleanup(func() { stop(); <-done })
	return c
}

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) node(name string) {
	c.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	c.must(c.api.Create(c.Context(), n))
	bare := n.DeepCopy()
	n.Status.Capacity, n.Status.Allocatable = amounts("8"), amounts("8")
	for _, list := range []corev1.ResourceList{n.Status.Capacity, n.Status.Allocatable} {
		list[corev1.ResourcePods] = *ptr.To(amounts("100")[corev1.ResourceCPU])
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
	c.must(c.api.Status().Patch(c.Context(), n, client.MergeFrom(bare)))
}

// add are the loops of a controller, with the queue's.
func (c *cluster) add(mgr ctrl.Manager) {
	c.Helper()
	store := state.New(state.Options{Clock: clock.RealClock{}})
	queue, err := orchestration.New(orchestration.Dependencies{
		Clock: clock.RealClock{}, Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Recorder: c, Nodes: calm{},
		Lease: types.NamespacedName{Namespace: "default", Name: "queue"}, Identity: "only",
	})
	c.must(err)
	d := migration.Dependencies{
		Clock: clock.RealClock{}, Client: sent{mgr.GetClient()}, API: mgr.GetAPIReader(), Store: store, Recorder: c, Placement: c, Judge: &court{},
		Gating: true, Evicting: make(chan struct{}, 1),
		Running: func() []*v1alpha1.RTAction { return queue.Running(rules.Migrate) },
	}
	queue.Handle(rules.Migrate, migration.New(d))
	type loop interface {
		Register(context.Context, ctrl.Manager) error
	}
	loops := []loop{informer.New(store), &migration.Gates{Client: mgr.GetClient(), API: mgr.GetAPIReader()}, migration.NewReconciler(migration.ReconcilerDependencies{
		Dependencies: d, Actions: queue, Rooms: c.rooms, Load: func(string) (float64, bool) { return 0, false }, Threshold: 0.85,
	})}
	for _, l := range queue.Loops() {
		loops = append(loops, l)
	}
	for _, l := range loops {
		c.must(l.Register(c.Context(), mgr))
	}
}

// sent is the API server as the controller sees it where its webhook is asked, by dry runs, of what owners make. There is no webhook here.
type sent struct{ client.Client }

// Create implements client.Client.
func (s sent) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	err := s.Client.Create(ctx, o, opts...)
	if pod, ok := o.(*corev1.Pod); ok && isDryRun(opts) {
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.GateMigration}}
	}
	return err
}

// Publish implements orchestration.Recorder. Each Event is a request, unless it is told twice.
func (c *cluster) Publish(list ...events.Event) {
	c.lock.Lock()
	defer c.lock.Unlock()
	for _, e := range list {
		if key := fmt.Sprint(e.Reason, e.Dedupe); !c.told[key] {
			c.told[key] = true
			c.asked = append(c.asked, "POST event "+e.Reason)
		}
	}
}

// Refusal implements migration.Placement.
func (c *cluster) Refusal(context.Context, string, []*corev1.Pod) (string, error) { return "", nil }

// rooms of nodes: c has the most left.
func (c *cluster) rooms() map[string]placement.Room {
	return map[string]placement.Room{
		"a": {Allocatable: amounts("8"), Available: amounts("2")}, "b": {Allocatable: amounts("8"), Available: amounts("4")}, "c": {Allocatable: amounts("8"), Available: amounts("6")},
	}
}

// kubelets run what is bound, and end what is deleted.
func (c *cluster) kubelets(ctx context.Context) {
	for ctx.Err() == nil {
		list := &corev1.PodList{}
		if c.api.List(ctx, list) != nil {
			return
		}
		for i := range list.Items {
			p := &list.Items[i]
			switch {
			case p.Spec.NodeName == "":
			case p.DeletionTimestamp != nil:
				_ = c.api.Delete(ctx, p, client.GracePeriodSeconds(0))
			case p.Status.Phase == corev1.PodPending:
				p.Status.Phase = corev1.PodRunning
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
				_ = c.api.Status().Update(ctx, p)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// soon waits until something holds.
func (c *cluster) soon(what string, holds func() bool) {
	c.Helper()
	deadline := time.After(eventually)
	for !holds() {
		select {
		case <-deadline:
			c.Fatalf("it never came to pass that %s", what)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// pods of an app that are not about to end.
func (c *cluster) pods(app string) []corev1.Pod {
	c.Helper()
	list := &corev1.PodList{}
	c.must(c.api.List(c.Context(), list, client.InNamespace("default"), client.MatchingLabels{"app": app}))
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

func (c *cluster) runs(app string, n int) []corev1.Pod {
	c.Helper()
	c.soon(fmt.Sprintf("%d pods of %s run", n, app), func() bool {
		list := c.pods(app)
		return len(list) == n && !slices.ContainsFunc(list, func(p corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning })
	})
	return c.pods(app)
}

// moved creates a PodMigration and waits until it is over.
func (c *cluster) moved(pod corev1.Pod, target string, strategy v1alpha1.MigrationStrategy) *v1alpha1.PodMigration {
	c.Helper()
	o := &v1alpha1.PodMigration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "move-"}, Spec: v1alpha1.PodMigrationSpec{PodName: pod.Name, TargetNode: target, Strategy: strategy}}
	c.must(c.api.Create(c.Context(), o))
	c.soon("the migration of "+pod.Name+" is over", func() bool {
		c.must(c.api.Get(c.Context(), client.ObjectKeyFromObject(o), o))
		return o.Status.Phase.Over()
	})
	return o
}

// elsewhere is a node that the pod is not on.
func elsewhere(pod corev1.Pod) string {
	if pod.Spec.NodeName == "b" {
		return "a"
	}
	return "b"
}

func template(app string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](0), Containers: []corev1.Container{{Name: "app", Image: "none", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: amounts("1")[corev1.ResourceCPU]}}}}},
	}
}

// With Kubernetes' own ReplicaSet, StatefulSet and Job controllers and its scheduler.
func TestOnAControlPlane(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template("web")},
	}
	c.must(c.api.Create(t.Context(), deployment))
	generation := deployment.Generation

	t.Run("surge is what a Deployment's pod goes by", func(t *testing.T) {
		before := c.runs("web", 3)
		source, target := before[0], elsewhere(before[0])
		o := c.moved(source, target, "")
		expectOutcome(t, o, "Succeeded", "Surge", "in place of")
		after := c.runs("web", 3)
		stayed, came := 0, ""
		for _, p := range after {
			switch {
			case p.Name == before[1].Name || p.Name == before[2].Name:
				stayed++
			case p.Name == o.Status.Target.PodName && metav1.GetControllerOf(&p) != nil:
				came = p.Spec.NodeName
			}
		}
		if stayed != 2 || came != target {
			t.Errorf("%d pods of the others stayed, and the one in its place is on %q, not on %s", stayed, came, target)
		}
	})
	t.Run("the target is the one with most headroom", func(t *testing.T) {
		pods := c.runs("web", 3)
		i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Spec.NodeName != "c" })
		c.requests() // of what began before
		o := c.moved(pods[i], "", "")
		expectOutcome(t, o, "Succeeded", "Surge", "")
		c.frugal(t)
		if o.Status.Target.Node != "c" {
			t.Errorf("it went to %s", o.Status.Target.Node)
		}
	})
	t.Run("evict", func(t *testing.T) {
		source := c.runs("web", 3)[0]
		c.cordon(source.Spec.NodeName, true)
		c.requests()
		expectOutcome(t, c.moved(source, "", "Evict"), "Succeeded", "Evict", "")
		c.frugal(t)
		c.cordon(source.Spec.NodeName, false)
		c.runs("web", 3)
	})
	t.Run("restart", func(t *testing.T) {
		source := c.runs("web", 3)[0]
		c.cordon(source.Spec.NodeName, true)
		c.requests()
		expectOutcome(t, c.moved(source, elsewhere(source), "Restart"), "Succeeded", "Restart", "")
		c.frugal(t)
		c.cordon(source.Spec.NodeName, false)
		c.runs("web", 3)
	})
	t.Run("the Deployment is as it was", func(t *testing.T) {
		c.must(c.api.Get(t.Context(), client.ObjectKeyFromObject(deployment), deployment))
		if deployment.Generation != generation {
			t.Errorf("somebody has changed it: %+v", deployment.Spec)
		}
	})
	t.Run("a StatefulSet's pod is made again under its name", func(t *testing.T) {
		c.must(c.api.Create(t.Context(), &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"},
			Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, Template: template("db")},
		}))
		source := c.runs("db", 1)[0]
		c.cordon(source.Spec.NodeName, true)
		o := c.moved(source, elsewhere(source), "")
		c.cordon(source.Spec.NodeName, false)
		expectOutcome(t, o, "Succeeded", "Restart", "")
		if p := c.runs("db", 1)[0]; p.Name != "db-0" || p.UID == source.UID || p.Spec.NodeName == source.Spec.NodeName {
			t.Errorf("pod %s (%s) on %s", p.Name, p.UID, p.Spec.NodeName)
		}
	})
	t.Run("a bare pod is stored before it goes", func(t *testing.T) {
		p := template("bare")
		c.must(c.api.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "bare", Labels: p.Labels}, Spec: p.Spec}))
		source := c.runs("bare", 1)[0]
		expectOutcome(t, c.moved(source, "", ""), "Refused", "", "no controller owns the pod")
		expectOutcome(t, c.moved(source, elsewhere(source), "Restart"), "Succeeded", "Restart", "")
		p2 := c.runs("bare", 1)[0]
		if p2.UID == source.UID || p2.Spec.NodeName != elsewhere(source) {
			t.Errorf("pod %s on %s", p2.Name, p2.Spec.NodeName)
		}
		expectOutcome(t, c.moved(p2, source.Spec.NodeName, "Restart"), "Succeeded", "Restart", "")
		if back := c.runs("bare", 1)[0]; back.Spec.NodeName != source.Spec.NodeName {
			t.Errorf("pod %s came back to %s", back.Name, back.Spec.NodeName)
		}
	})
}

// expectOutcome fails the test unless the migration is over in that phase, by that strategy, with a message that contains those words.
func expectOutcome(t *testing.T, o *v1alpha1.PodMigration, phase v1alpha1.MigrationPhase, strategy v1alpha1.MigrationStrategy, says string) {
	t.Helper()
	if o.Status.Phase != phase || o.Status.Strategy != strategy || !strings.Contains(o.Status.Message, says) {
		t.Errorf("it is %s by %q: %s", o.Status.Phase, o.Status.Strategy, o.Status.Message)
	}
}

func (c *cluster) cordon(name string, closed bool) {
	c.Helper()
	n := &corev1.Node{}
	c.must(c.api.Get(c.Context(), client.ObjectKey{Name: name}, n))
	before := n.DeepCopy()
	n.Spec.Unschedulable = closed
	c.must(c.api.Patch(c.Context(), n, client.MergeFrom(before)))
}
