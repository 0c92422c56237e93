package driver_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/agent/driver"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// api is the API server of all tests of this package, started by the first that needs it.
var api struct {
	plane *localplane.Plane
	kubernetes.Interface
}

func TestMain(m *testing.M) {
	code := m.Run()
	if api.plane != nil {
		if err := api.plane.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(code)
}

func startAPI(t *testing.T) {
	t.Helper()
	if api.plane != nil {
		return
	}
	var options localplane.Options
	var err error
	if options.Bin, err = toolchain.Ensure(t.Context(), os.Stderr, options.Tools()...); err != nil {
		t.Fatal(err)
	}
	if api.plane, err = localplane.Start(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if api.Interface, err = kubernetes.NewForConfig(api.plane.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	if _, err = api.ResourceV1().DeviceClasses().Create(t.Context(), rtdra.DeviceClass(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// unreachable is a client of an API server that is not there.
func unreachable(t *testing.T) kubernetes.Interface {
	t.Helper()
	config := api.plane.RESTConfig()
	config.Host = "https://127.0.0.1:1"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// node is a node with its kubelet, its cores and what the fast path reports. A test may change all of it.
type node struct {
	t       *testing.T
	kubelet kubelet
	cdi     string
	machine atomic.Pointer[[]host.Core]
	servers servers
	clock   clock.WithTicker
	driver  *driver.Driver
	plugin  *plugin
}

// servers is the node's table; without one, claims wait for nothing.
type servers map[types.UID][]table.Server

func (s servers) OfPod(pod types.UID) []table.Server { return s[pod] }

// newNode has four cores, of which the fast path governs 1 to 3.
func newNode(t *testing.T) *node {
	t.Helper()
	startAPI(t)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	if _, err := api.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	out := &node{t: t, kubelet: newKubelet(t), cdi: t.TempDir(), clock: clock.RealClock{}}
	out.hotplug(machine(4))
	t.Cleanup(out.remove)
	out.start()
	return out
}

func (n *node) hotplug(cores []host.Core) { n.machine.Store(&cores) }

// start is also a restart: of the agent's pod, or after a crash.
func (n *node) start() {
	n.t.Helper()
	config := driver.Config{
		NodeName: nodeName, Client: api.Interface, KubeletDir: n.kubelet.dir, CDIDir: n.cdi, EscalationReserve: 100_000,
		Machine: func() (host.Topology, error) { return host.Topology{Cores: *n.machine.Load()}, nil },
		Clock:   n.clock,
	}
	if n.servers != nil {
		config.Servers = n.servers
	}
	d, err := driver.Start(n.t.Context(), config)
	if err != nil {
		n.t.Fatal(err)
	}
	n.driver, n.plugin = d, n.kubelet.register()
}

func (n *node) restart() {
	n.t.Helper()
	n.driver.Stop()
	if err := n.driver.Wait(); err != nil {
		n.t.Errorf("it stopped with %v", err)
	}
	n.start()
}

func (n *node) report(r table.Report) {
	n.t.Helper()
	if err := n.driver.Update(r); err != nil {
		n.t.Fatal(err)
	}
}

// remove leaves nothing for the next test.
func (n *node) remove() {
	ctx := context.Background()
	n.driver.Stop()
	err := errors.Join(
		api.CoreV1().Nodes().Delete(ctx, nodeName, metav1.DeleteOptions{}),
		api.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		api.ResourceV1().ResourceClaims("default").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
	)
	if err != nil {
		n.t.Error(err)
	}
}

// claim makes a claim with its allocation, as the scheduler would.
func (n *node) claim(name, device string, ppm int64, options ...func(*resourcev1.ResourceClaim)) *resourcev1.ResourceClaim {
	n.t.Helper()
	wanted := claimOn(name, device, ppm, options...)
	claims := api.ResourceV1().ResourceClaims("default")
	made, err := claims.Create(n.t.Context(), &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: wanted.Annotations}, Spec: wanted.Spec,
	}, metav1.CreateOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	made.Status = wanted.Status
	if made, err = claims.UpdateStatus(n.t.Context(), made, metav1.UpdateOptions{}); err != nil {
		n.t.Fatal(err)
	}
	return made
}

func (n *node) delete(claim *resourcev1.ResourceClaim) {
	n.t.Helper()
	if err := api.ResourceV1().ResourceClaims("default").Delete(n.t.Context(), claim.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		n.t.Fatal(err)
	}
}

// published are the node's devices, as "core-1 800000 rtgroup".
func (n *node) published() []string {
	n.t.Helper()
	list, err := api.ResourceV1().ResourceSlices().List(n.t.Context(), metav1.ListOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	var out []string
	for _, s := range list.Items {
		if owner := s.OwnerReferences; len(owner) != 1 || owner[0].Kind != "Node" || owner[0].Name != nodeName || s.Spec.Pool.Name != nodeName || s.Spec.NodeName == nil || *s.Spec.NodeName != nodeName {
			n.t.Errorf("slice %+v", s)
		}
		for _, d := range s.Spec.Devices {
			core, err := rtdra.CoreOf(d)
			if err != nil {
				n.t.Error(err)
			}
			out = append(out, fmt.Sprintf("%s %d %s", d.Name, core.Capacity, rtdra.BackendOf(d)))
		}
	}
	return out
}

func (n *node) expectPublished(want ...string) {
	n.t.Helper()
	var got []string
	defer func() {
		if n.t.Failed() {
			n.t.Logf("published %q, want %q", got, want)
		}
	}()
	eventually(n.t, "publishing", func() bool { got = n.published(); return slices.Equal(got, want) })
}

// expectPrepared compares records and CDI specifications on disk with the claims.
func (n *node) expectPrepared(claims ...*resourcev1.ResourceClaim) {
	n.t.Helper()
	var want []string
	for _, c := range claims {
		want = append(want, string(c.UID))
	}
	slices.Sort(want)
	names := func(dir, prefix string) []string {
		entries, err := os.ReadDir(dir)
		if err != nil {
			n.t.Fatal(err)
		}
		var out []string
		for _, e := range entries {
			out = append(out, strings.TrimSuffix(strings.TrimPrefix(e.Name(), prefix), ".json"))
		}
		return out
	}
	if got := names(n.cdi, "cpu.mckube.io-claim_"); !slices.Equal(got, want) {
		n.t.Errorf("CDI specifications %q, want %q", got, want)
	}
	if got := names(n.records(), ""); !slices.Equal(got, want) {
		n.t.Errorf("records %q, want %q", got, want)
	}
	for _, c := range claims {
		if held := n.driver.Claims(c.Status.ReservedFor[0].UID); len(held) != 1 || held[0].UID != c.UID {
			n.t.Errorf("claims of the pod of %s: %+v", c.Name, held)
		}
	}
}

func (n *node) records() string {
	return filepath.Join(n.kubelet.dir, "plugins", "cpu.mckube.io", "claims")
}
