package informer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/mainspring-rt/mainspring/pkg/apis"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/informer"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// patience is how long the API server and its watches may take.
const patience = 30 * time.Second

// A real API server with our CRDs.
var (
	config *rest.Config
	scheme = runtime.NewScheme()
	kube   client.Client
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	ctx := context.Background()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, mcv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return 1, err
		}
	}
	options := localplane.Options{}
	var err error
	if options.Bin, err = toolchain.Ensure(ctx, os.Stderr, options.Tools()...); err != nil {
		return 1, err
	}
	plane, err := localplane.Start(ctx, options)
	if err != nil {
		return 1, err
	}
	defer plane.Stop() //nolint:errcheck // the tests are over
	config = plane.RESTConfig()
	if kube, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return 1, err
	}
	if err := install(ctx); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

func install(ctx context.Context) error {
	crds, err := apis.CRDs()
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if err := kube.Create(ctx, crd); err != nil {
			return err
		}
	}
	return within(ctx, func() error {
		return errors.Join(kube.List(ctx, &mcv1.McKubeList{}), kube.List(ctx, &v1alpha1.RTNodeList{}))
	})
}

// within asks until the answer is nil.
func within(ctx context.Context, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-ticker.C:
		}
	}
}

// follow feeds a store from a manager that is not the leader and never will be.
func follow(t *testing.T) *state.Store {
	t.Helper()
	store := state.New(state.Options{})
	options := ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionID: "held-by-another", LeaderElectionNamespace: "default",
	}
	informer.Trim(&options.Cache)
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		t.Fatal(err)
	}
	if err := informer.New(store).Register(t.Context(), mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the manager ended with %v", err)
		}
	})
	return store
}

func create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		wanted := o.DeepCopyObject().(client.Object)
		o.SetUID("")
		o.SetCreationTimestamp(metav1.Time{})
		if err := kube.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = kube.Delete(context.Background(), o, client.GracePeriodSeconds(0)) })
		switch o := o.(type) {
		case *corev1.Node:
			o.Status = wanted.(*corev1.Node).Status
		case *resourcev1.ResourceClaim:
			o.Status = wanted.(*resourcev1.ResourceClaim).Status
		default:
			continue
		}
		if err := kube.Status().Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

func eventually(t *testing.T, ask func() error) {
	t.Helper()
	if err := within(t.Context(), ask); err != nil {
		t.Fatal(err)
	}
}

// holdLease makes another process the leader.
func holdLease(t *testing.T) {
	t.Helper()
	options := ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionID: "held-by-another", LeaderElectionNamespace: "default",
	}
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the leader ended with %v", err)
		}
	})
	select {
	case <-mgr.Elected():
	case <-time.After(patience):
		t.Fatal("nobody was elected")
	}
}

// A replica that is not the leader knows what was there before it started, and follows what happens.
func TestEveryReplicaFollowsTheAPI(t *testing.T) {
	holdLease(t)
	n := statetest.Node("node", "")
	create(t, n)
	slice := statetest.Slice(n, statetest.Cores(2)...)
	p := statetest.WithClaim(statetest.Pod("default", "pod", "", "app"), "app", "pod-claim")
	p.Spec.Containers[0].Image = "app"
	automount := false
	p.Spec.AutomountServiceAccountToken, p.Spec.NodeName = &automount, "node"
	create(t, slice, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}, p)
	claim := statetest.Claim(p, "pod-claim", "app", "node", 1, 301_000)
	m := statetest.McKube("default", "m", "pod", "High", 20, 30)
	create(t, claim)

	store := follow(t)
	eventually(t, store.Synced)
	expect := func(want string) {
		t.Helper()
		eventually(t, func() error {
			if got := told(store.Snapshot()); got != want {
				return fmt.Errorf("the state has %q, want %q", got, want)
			}
			return nil
		})
	}
	expect("node: claim 301000 on 1") // no McKube governs it yet
	create(t, m)
	expect("node: pod/app 301000 on 1")
	r := statetest.RTNode(n, statetest.RTServer(p, "app", 0))
	create(t, r)
	expect("node: pod/app 301000 on 1, runs on 0")
	if err := kube.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	expect("node: claim 301000 on 1, pod/app on none, runs on 0")
	if err := errors.Join(kube.Delete(t.Context(), r), kube.Delete(t.Context(), claim), kube.Delete(t.Context(), n), kube.Delete(t.Context(), slice)); err != nil {
		t.Fatal(err)
	}
	expect("")
}

// told is the state in a line.
func told(s *state.Snapshot) string {
	var out []string
	for n := range s.Nodes() {
		var servers []string
		for _, v := range n.Servers {
			text := fmt.Sprintf("%s/%s %d on %d", v.Pod, v.Container, v.Claimed, v.Witness)
			if v.Claimant() {
				text = fmt.Sprintf("claim %d on %d", v.Claimed, v.Witness)
			}
			if v.Witness < 0 {
				text = fmt.Sprintf("%s/%s on none", v.Pod, v.Container)
			}
			if v.Physical >= 0 {
				text += fmt.Sprintf(", runs on %d", v.Physical)
			}
			servers = append(servers, text)
		}
		// A claim's ID begins with its kind, a pod's with a digit or letter of its UID: make the order one of kinds.
		if len(servers) == 2 && strings.HasPrefix(servers[1], "claim") {
			servers[0], servers[1] = servers[1], servers[0]
		}
		out = append(out, n.Name+": "+strings.Join(servers, ", "))
	}
	return strings.Join(out, "; ")
}
