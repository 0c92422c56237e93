package hollow_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
	"github.com/mainspring-rt/mainspring/pkg/hollow"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

// world is a cluster with a fleet, or with several one after the other.
type world struct {
	testing.TB
	client.Client
	config *rest.Config
}

func newWorld(t testing.TB) world {
	t.Helper()
	scheme, err := hollow.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	return world{TB: t, Client: apiserver.Client(t, scheme), config: apiserver.Config(t)}
}

// fleet runs until the returned function is called, or the test ends.
func (w world) fleet() (stop func()) {
	w.Helper()
	return w.fleetWith(time.Second)
}

func (w world) fleetWith(heartbeat time.Duration) (stop func()) {
	w.Helper()
	machines, err := catalogue.Default()
	if err != nil {
		w.Fatal(err)
	}
	noNames := true
	manager, err := ctrl.NewManager(w.config, ctrl.Options{
		Scheme: w.Scheme(), Cache: hollow.CacheOptions(), Metrics: server.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{SkipNameValidation: &noNames},
	})
	if err != nil {
		w.Fatal(err)
	}
	if err := hollow.Index(w.Context(), manager.GetFieldIndexer()); err != nil {
		w.Fatal(err)
	}
	if err := manager.Add(hollow.New(hollow.Options{
		Client: manager.GetClient(), Cache: manager.GetCache(), Clock: clock.RealClock{},
		Recorder: manager.GetEventRecorder("hollow"), Catalogue: machines, Heartbeat: heartbeat,
	})); err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("fleet: %v", err)
		}
	})
	w.Cleanup(stop)
	return stop
}

func (w world) create(objects ...client.Object) {
	w.Helper()
	for _, o := range objects {
		status := o.DeepCopyObject().(client.Object)
		if err := w.Create(w.Context(), o); err != nil {
			w.Fatal(err)
		}
		w.Cleanup(func() { _ = w.Delete(context.Background(), o, client.GracePeriodSeconds(0)) }) // another test's fleet need not see it
		if pod, ok := status.(*corev1.Pod); ok {
			pod.UID, pod.ResourceVersion = o.GetUID(), o.GetResourceVersion()
			if err := w.Status().Update(w.Context(), pod); err != nil {
				w.Fatal(err)
			}
		}
	}
}

const patience = time.Minute

// eventually waits until found says nothing more is missing.
func (w world) eventually(what string, missing func() string) {
	w.Helper()
	deadline := time.Now().Add(patience)
	last := ""
	for time.Now().Before(deadline) {
		if last = missing(); last == "" {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.Fatalf("%s: %s", what, last)
}

func (w world) eventuallyStatus(node, what string, holds func(v1alpha1.RTNodeStatus) bool) v1alpha1.RTNodeStatus {
	w.Helper()
	found := &v1alpha1.RTNode{}
	w.eventually(what, func() string {
		if err := w.Get(w.Context(), client.ObjectKey{Name: node}, found); err != nil {
			return err.Error()
		}
		if holds(found.Status) {
			return ""
		}
		return fmt.Sprintf("%+v", found.Status)
	})
	return found.Status
}

func (w world) slices(node string) []resourcev1.ResourceSlice {
	w.Helper()
	list := &resourcev1.ResourceSliceList{}
	if err := w.List(w.Context(), list, client.MatchingFields{resourcev1.ResourceSliceSelectorNodeName: node}); err != nil {
		w.Fatal(err)
	}
	return list.Items
}

func atom(name, script string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{corev1.LabelInstanceTypeStable: "edge-atom-4x-amd64-linux"},
		Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
	}}
	if script != "" {
		n.Annotations[hollow.AnnotationScript] = script
	}
	return n
}

func rtNodeOf(n *corev1.Node, servers ...v1alpha1.RTServer) *v1alpha1.RTNode {
	return &v1alpha1.RTNode{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}}},
		Spec:       v1alpha1.RTNodeSpec{Servers: servers},
	}
}

func podOn(node, name, script string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{hollow.AnnotationScript: script}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "app", Image: "app"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now().Truncate(time.Second))}},
		}}},
	}
}

func highServer(pod *corev1.Pod) v1alpha1.RTServer {
	return v1alpha1.RTServer{
		PodUID: pod.UID, Namespace: pod.Namespace, Pod: pod.Name, Container: "app", Criticality: "High",
		PeriodUs: 10_000, DeadlineUs: 10_000, BudgetLowUs: 2_000, BudgetHighUs: 4_000, Cores: []int32{1}, Level: "low", Mode: "Elastic",
		DwellUs: 3_000_000,
	}
}

func planFor(s v1alpha1.RTServer) v1alpha1.RTCorePlan {
	return v1alpha1.RTCorePlan{Core: s.Cores[0], Test: "T1", ThresholdPpm: 900_000, Raise: []v1alpha1.RTRaise{{
		RTServerRef: v1alpha1.RTServerRef{PodUID: s.PodUID, Container: s.Container}, ToUs: s.BudgetHighUs,
	}}}
}
