package nri_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/agent/driver"
	"github.com/mainspring-rt/mainspring/pkg/agent/nri"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// node is what the agent knows, and what the fast path answers.
type node struct {
	mu      sync.Mutex
	claims  map[types.UID][]driver.Record
	servers map[types.UID][]table.Server
	first   table.First
	refuse  error
	asked   []table.Server
	created []string
}

func newNode() *node {
	return &node{claims: map[types.UID][]driver.Record{}, servers: map[types.UID][]table.Server{}}
}

func (n *node) Claims(pod types.UID) []driver.Record {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.claims[pod]
}

func (n *node) OfPod(pod types.UID) []table.Server {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.servers[pod]
}

func (n *node) room(_ context.Context, s table.Server) (table.First, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, s)
	return n.first, n.refuse
}

// rooms are those asked for since the last call.
func (n *node) rooms() []table.Server {
	n.mu.Lock()
	defer n.mu.Unlock()
	asked := n.asked
	n.asked = nil
	return asked
}

func (n *node) tell(pod types.UID, container, id, cgroup string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.created = append(n.created, strings.Join([]string{string(pod), container, id, cgroup}, " "))
}

func (n *node) told() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.created, ", ")
}

// add has a claim prepared for the app container of a pod, and, if asked, its server in the table.
func (n *node) add(pod types.UID, core int, inTable bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.claims[pod] = []driver.Record{{
		Version: 1, UID: "claim-of-" + pod, Namespace: "default", Name: string(pod) + "-app", PodClaim: "rt-app", Pods: []types.UID{pod},
		Shares: []driver.Share{{Core: core}},
	}}
	if inTable {
		n.servers[pod] = []table.Server{{ID: string(pod) + "/app", Core: core, PeriodUs: 10_000, LowUs: 2_000, HighUs: 4_000}}
	}
}

// runtime is a real one's side of NRI, without containers.
type runtime struct {
	*adaptation.Adaptation
	socket     string
	mu         sync.Mutex
	pods       []*api.PodSandbox
	containers []*api.Container
	synced     chan struct{}
	// annotations that the last container was given.
	annotations map[string]string
}

func (r *runtime) sync(ctx context.Context, callback adaptation.SyncCB) error {
	r.mu.Lock()
	pods, containers := r.pods, r.containers
	r.mu.Unlock()
	updates, err := callback(ctx, pods, containers)
	if len(updates) > 0 {
		return errors.New("the plugin asks for updates of containers that run")
	}
	r.synced <- struct{}{}
	return err
}

func startRuntime(t *testing.T, r *runtime) {
	t.Helper()
	dir, err := os.MkdirTemp("", "nri-") // a path short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r.socket, r.synced = filepath.Join(dir, "nri.sock"), make(chan struct{}, 10)
	none := func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil }
	r.Adaptation, err = adaptation.New("test", "v2.4.2", r.sync, none, adaptation.WithSocketPath(r.socket),
		adaptation.WithPluginPath(filepath.Dir(r.socket)), adaptation.WithPluginConfigPath(filepath.Dir(r.socket)))
	if err == nil {
		err = r.Start()
		<-r.synced // with the plugins that it starts itself, of which there are none
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Stop() })
}

// wire is a socket in front of the runtime's that can be cut, as when a runtime dies.
type wire struct {
	socket string
	mu     sync.Mutex
	ends   []net.Conn
}

func newWire(t *testing.T, r *runtime) *wire {
	t.Helper()
	w := &wire{socket: r.socket + ".wire"}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close(); w.cut() })
	go func() {
		for {
			plugin, err := listener.Accept()
			if err != nil {
				return
			}
			runtime, err := (&net.Dialer{}).DialContext(context.Background(), "unix", r.socket)
			if err != nil {
				_ = plugin.Close()
				continue
			}
			w.mu.Lock()
			w.ends = append(w.ends, plugin, runtime)
			w.mu.Unlock()
			go func() { _, _ = io.Copy(plugin, runtime) }()
			go func() { _, _ = io.Copy(runtime, plugin) }()
		}
	}()
	return w
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, end := range w.ends {
		_ = end.Close()
	}
	w.ends = nil
}

// criuFile has the options for CRIU.
const criuFile = "/var/lib/mainspring/agent/criu.conf"

// connect runs the plugin until the test ends.
func connect(t *testing.T, r *runtime, n *node) {
	t.Helper()
	connectAt(t, r, n, r.socket)
}

func connectAt(t *testing.T, r *runtime, n *node, socket string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- nri.Run(ctx, nri.Config{Socket: socket, Claims: n, Servers: n, CRIU: criuFile, Room: n.room, Created: n.tell, Clock: clock.RealClock{}})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	r.expectConnected(t)
}

func (r *runtime) expectConnected(t *testing.T) {
	t.Helper()
	select {
	case <-r.synced:
		r.BlockPluginSync().Unblock() // until the runtime is through with it
	case <-time.After(20 * time.Second):
		t.Fatal("the plugin does not connect")
	}
}

// start is a node with its runtime and the plugin connected.
func start(t *testing.T) (*node, *runtime) {
	t.Helper()
	n, r := newNode(), &runtime{}
	startRuntime(t, r)
	connect(t, r, n)
	return n, r
}

func sandbox(uid string) *api.PodSandbox {
	return &api.PodSandbox{Id: "sandbox-" + uid, Name: "pod", Uid: uid, Namespace: "default"}
}

// container of a pod, as the kubelet asks for it.
func container(pod, name string, options ...func(*api.Container)) *api.Container {
	c := &api.Container{
		Id: containerID, PodSandboxId: "sandbox-" + pod, Name: name, State: api.ContainerState_CONTAINER_RUNNING,
		Labels: map[string]string{"io.kubernetes.container.name": name},
		Linux:  &api.LinuxContainer{CgroupsPath: "/kubepods/burstable/pod" + pod + "/" + containerID, Resources: &api.LinuxResources{Cpu: &api.LinuxCPU{}}},
	}
	for _, o := range options {
		o(c)
	}
	return c
}

func withDevice(claim string) func(*api.Container) {
	return func(c *api.Container) {
		c.CDIDevices = append(c.CDIDevices, &api.CDIDevice{Name: "vendor.com/gpu=0"}, &api.CDIDevice{Name: "cpu.mckube.io/claim=" + claim})
	}
}

// restored: the runtime passes the name of another container, and no label.
func restored(c *api.Container) { c.Name, c.Labels = "other", nil }

func (r *runtime) create(t *testing.T, pod string, c *api.Container) (*api.LinuxResources, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	answer, err := r.CreateContainer(ctx, &api.CreateContainerRequest{Pod: sandbox(pod), Container: c})
	if err != nil {
		return nil, err
	}
	r.annotations = answer.GetAdjust().GetAnnotations()
	return answer.GetAdjust().GetLinux().GetResources(), nil
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) { return is(), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
