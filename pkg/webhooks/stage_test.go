package webhooks_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/mainspring-rt/mainspring/charts"
	"github.com/mainspring-rt/mainspring/pkg/apis"
	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/process"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/informer"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
	"github.com/mainspring-rt/mainspring/pkg/webhooks"
	"github.com/mainspring-rt/mainspring/pkg/webhooks/certs"
)

const (
	systemNamespace = "mainspring-system"
	secretName      = "mainspring-webhook"
	// eventually bounds every wait; a busy machine takes seconds.
	eventually = time.Minute
)

// stage is a real API server with our CRDs and webhooks, and the process that answers them.
type stage struct {
	client client.Client
	config *rest.Config
	// kubeconfig is the file for kubectl.
	kubeconfig string
	warnings   *warnings
	clock      *clocktesting.FakeClock
	port       int
	stop       func()
	ready      healthz.Checker
}

// warnings are those that the API server sent with its answers.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

func (w *warnings) all() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.texts, "\n")
}

func newStage(t *testing.T) *stage {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	options := localplane.Options{}
	var err error
	if options.Bin, err = toolchain.Ensure(t.Context(), os.Stderr, options.Tools()...); err != nil {
		t.Fatal(err)
	}
	plane, err := localplane.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { plane.Stop() }) //nolint:errcheck // the test is over
	ports, err := process.FreePorts(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{warnings: &warnings{}, clock: clocktesting.NewFakeClock(time.Now()), port: ports[0]}
	s.config, s.kubeconfig = rest.CopyConfig(plane.RESTConfig()), plane.Kubeconfig()
	s.config.WarningHandler = s.warnings
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, mcv1.AddToScheme, mckubev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	if s.client, err = client.New(s.config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	s.install(t, plane)
	return s
}

// install applies the CRDs and what the local stack applies of the chart.
func (s *stage) install(t *testing.T, plane *localplane.Plane) {
	t.Helper()
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
	configurations, err := charts.Webhooks(fmt.Sprintf("https://localhost:%d", s.port))
	if err != nil {
		t.Fatal(err)
	}
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "default"}},
	}
	for _, c := range configurations.Mutating {
		objects = append(objects, c)
	}
	for _, c := range configurations.Validating {
		objects = append(objects, c)
	}
	for _, o := range objects {
		if err := client.IgnoreAlreadyExists(s.client.Create(t.Context(), o)); err != nil {
			t.Fatal(err)
		}
	}
}

// start runs the webhooks until stop, and waits until they are ready.
func (s *stage) start(t *testing.T) {
	t.Helper()
	mgr, err := ctrl.NewManager(s.config, ctrl.Options{
		Scheme: s.client.Scheme(), Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	store := state.New(state.Options{Granularity: granularity})
	if err := informer.New(store).Register(t.Context(), mgr); err != nil {
		t.Fatal(err)
	}
	handlers := webhooks.Handlers{Cluster: webhooks.FromStore(store, s.clock), Granularity: granularity, Spared: []string{"kube-system", systemNamespace}, Migrations: mgr.GetClient(), Evictions: &webhooks.Gate{
		Synced: store.Synced, Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: s.clock, Deadline: 24 * time.Hour, Self: webhooks.Self(mgr.GetClient()),
		Pod: func(namespace, name string) (*state.PodView, bool) { return store.Snapshot().PodNamed(namespace, name) },
	}}
	s.ready, err = webhooks.Add(mgr, handlers, s.clock, webhooks.Options{
		Host: "localhost", Port: s.port, Namespace: systemNamespace, Secret: secretName,
		Authority:      certs.Authority{DNSNames: []string{"localhost"}, Validity: time.Hour},
		Rotate:         true,
		Configurations: "mainspring", Certificates: &certs.Server{},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ready(&http.Request{}); err == nil {
		t.Error("it is ready before it has a certificate")
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("running the webhooks: %v", err)
		}
	})
	t.Cleanup(s.stop)
	s.soon(t, func() error { return s.ready(&http.Request{}) })
	s.soon(t, func() error {
		return s.client.Create(t.Context(), labelled(pod("probe"), "sdv.com", ""), client.DryRunAll)
	})
}

// soon waits until check holds.
func (s *stage) soon(t *testing.T, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventually)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("still after %s: %v", eventually, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// try creates a pod of the name, for nothing but the answer.
func (s *stage) try(t *testing.T, p *corev1.Pod, name string) (*corev1.Pod, error) {
	t.Helper()
	p.Name = name
	err := s.client.Create(t.Context(), p, client.DryRunAll)
	return p, err
}

func (s *stage) mustCreate(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := s.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}
