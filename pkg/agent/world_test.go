package agent_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/agent"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/host/hosttest"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.MainScheduledAsUsual(m)) }

// road leads to an API server, and can be closed.
type road struct {
	address, to string
	open        atomic.Bool
	mu          sync.Mutex
	conns       map[net.Conn]bool
}

func newRoad(t testing.TB, to string) *road {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &road{address: listener.Addr().String(), to: to, conns: map[net.Conn]bool{}}
	r.open.Store(true)
	t.Cleanup(func() { _ = listener.Close(); r.close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go r.carry(conn)
		}
	}()
	return r
}

func (r *road) carry(from net.Conn) {
	defer from.Close()
	to, err := net.Dial("tcp", r.to)
	if err != nil || !r.keep(from, to) {
		return
	}
	defer to.Close()
	go func() { _, _ = io.Copy(from, to) }() // ends with either side
	_, _ = io.Copy(to, from)
}

func (r *road) keep(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		r.conns[c] = true
	}
	return r.open.Load()
}

// close cuts every connection and takes no more.
func (r *road) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open.Store(false)
	for c := range r.conns {
		_ = c.Close()
	}
	r.conns = map[net.Conn]bool{}
}

// world is a node of a real API server with an agent whose machine is a fake tree.
type world struct {
	testing.TB
	client.Client
	config   *rest.Config
	road     *road
	node     *corev1.Node
	tree     *hosttest.Tree
	fast     *fakeFastPath
	stateDir string
	clock    clock.WithTicker
	door     string // address of the agent's front door
}

var worlds atomic.Int64

func newWorld(t testing.TB) *world {
	t.Helper()
	config := apiserver.Config(t)
	tree := hosttest.Lab(t)
	w := &world{TB: t, Client: apiserver.Client(t, apiserver.Scheme(t)), tree: tree, fast: newFastPath(t), stateDir: t.TempDir(), clock: clock.RealClock{}}
	w.road = newRoad(t, strings.TrimPrefix(config.Host, "https://"))
	w.config = rest.CopyConfig(config)
	w.config.Host = "https://" + w.road.address
	w.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", worlds.Add(1))}}
	w.must(w.Create(t.Context(), w.node))
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// agent runs one until the returned function is called, or the test ends.
func (w *world) agent() (stop func()) {
	w.Helper()
	options, err := agent.ParseOptions([]string{
		"--node-name=" + w.node.Name, "--fastpath-socket=" + w.fast.socket, "--host-root=" + w.tree.Dir(), "--state-dir=" + w.stateDir,
		"--kubelet-dir=", "--host=127.0.0.1", "--port=1",
	}, io.Discard)
	w.must(err)
	w.door = w.freeAddress()
	_, port, err := net.SplitHostPort(w.door)
	w.must(err)
	options.Port, err = strconv.Atoi(port)
	w.must(err)
	services, err := agent.Services(agent.Environment{Options: options, Config: w.config, Clock: w.clock, Log: logr.Discard(), Version: "test"})
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- agent.RunServices(ctx, services) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("the agent ended with %v", err)
		}
	})
	w.Cleanup(stop)
	return stop
}

// freeAddress is one that nobody listens on.
func (w *world) freeAddress() string {
	w.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	w.must(free.Close())
	return free.Addr().String()
}

// rtNode has the controller ask for servers on core 1.
func (w *world) rtNode(servers ...v1alpha1.RTServer) *v1alpha1.RTNode {
	w.Helper()
	r := &v1alpha1.RTNode{
		ObjectMeta: metav1.ObjectMeta{Name: w.node.Name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: w.node.Name, UID: w.node.UID}}},
		Spec:       v1alpha1.RTNodeSpec{Servers: servers, Plan: []v1alpha1.RTCorePlan{{Core: 1, Test: "T1", ThresholdPpm: 900_000}}},
	}
	for _, s := range servers {
		r.Spec.Plan[0].Raise = append(r.Spec.Plan[0].Raise, v1alpha1.RTRaise{RTServerRef: v1alpha1.RTServerRef{PodUID: s.PodUID, Container: s.Container}, ToUs: s.BudgetHighUs})
	}
	w.must(w.Create(w.Context(), r))
	return r
}

func serverFor(p *corev1.Pod) v1alpha1.RTServer {
	return v1alpha1.RTServer{
		PodUID: p.UID, Namespace: p.Namespace, Pod: p.Name, Container: "app", Criticality: "High", PeriodUs: 10_000, DeadlineUs: 10_000,
		BudgetLowUs: 2_000, BudgetHighUs: 4_000, Cores: []int32{1}, Level: "low", Mode: "Elastic",
	}
}

// pod is on the node, and does not run yet.
func (w *world) pod(name string) *corev1.Pod {
	w.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: w.node.Name + "-" + name},
		Spec:       corev1.PodSpec{NodeName: w.node.Name, Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}
	w.must(w.Create(w.Context(), p))
	return p
}

// run has the pod's container run as the nth, and makes its group. It returns the group.
func (w *world) run(p *corev1.Pod, n int) (id, group string) {
	w.Helper()
	id = fmt.Sprintf("%064x", n)
	group = w.tree.Container(hosttest.Kubelet{}, "burstable", string(p.UID), id)
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "app", ContainerID: "containerd://" + id, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}}
	w.must(w.Status().Update(w.Context(), p))
	return id, group
}

const patience = time.Minute

// eventually waits until missing says nothing.
func (w *world) eventually(what string, missing func() string) {
	w.Helper()
	deadline := time.Now().Add(patience)
	last := ""
	for time.Now().Before(deadline) {
		if last = missing(); last == "" {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	w.Fatalf("%s: %s", what, last)
}

func (w *world) eventuallyStatus(what string, holds func(v1alpha1.RTNodeStatus) bool) v1alpha1.RTNodeStatus {
	w.Helper()
	r := &v1alpha1.RTNode{}
	w.eventually(what, func() string {
		if err := w.Get(w.Context(), client.ObjectKey{Name: w.node.Name}, r); err != nil {
			return err.Error()
		}
		if holds(r.Status) {
			return ""
		}
		return fmt.Sprintf("%+v", r.Status)
	})
	return r.Status
}

// eventuallyTable waits until the fast path has a table.
func (w *world) eventuallyTable(what string, holds func(f *fakeFastPath) bool) {
	w.Helper()
	w.eventually(what, func() string {
		out := ""
		w.fast.see(func(f *fakeFastPath) {
			if !holds(f) {
				out = fmt.Sprintf("after %d tables %+v", f.applied, f.table)
			}
		})
		return out
	})
}

// events about an object, by reason, with their counts.
func (w *world) events(namespace, name string) map[string]corev1.Event {
	w.Helper()
	list := &corev1.EventList{}
	w.must(w.List(w.Context(), list, client.InNamespace(namespace)))
	out := map[string]corev1.Event{}
	for _, e := range list.Items {
		if e.InvolvedObject.Name == name {
			out[e.Reason] = e
		}
	}
	return out
}

// messages are those of all Events of an object with a reason.
func (w *world) messages(namespace, name, reason string) []string {
	w.Helper()
	list := &corev1.EventList{}
	w.must(w.List(w.Context(), list, client.InNamespace(namespace)))
	var out []string
	for _, e := range list.Items {
		if e.InvolvedObject.Name == name && e.Reason == reason {
			out = append(out, e.Message)
		}
	}
	return out
}

// call sends a request to the agent's front door.
func (w *world) call(method, path, token, body string) (int, string) {
	w.Helper()
	ca, err := os.ReadFile(filepath.Join(w.stateDir, "tls", "ca.crt"))
	w.must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	httpClient := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12}, DisableKeepAlives: true,
	}}
	request, err := http.NewRequestWithContext(w.Context(), method, "https://"+w.door+path, bytes.NewReader([]byte(body)))
	w.must(err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := httpClient.Do(request)
	w.must(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	w.must(err)
	return response.StatusCode, string(text)
}
