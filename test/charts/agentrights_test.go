package charts_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/heartbeat"
	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/test"
)

const agentUser = controllerUser + "-agent"

// agentUnexercised are rights of the agent that the scenario does not need.
var agentUnexercised = map[right]string{
	{"create", "", "events", ""}: "told of raises, faults and drift, of which there are none here",
	{"patch", "", "events", ""}:  "told of raises, faults and drift, of which there are none here",
}

// TestAgentRightsAreEnoughAndNeeded runs the agent with the chart's arguments and rights, and the token that a kubelet
// would give it, beside a fast path that only answers. The policies are on.
func TestAgentRightsAreEnoughAndNeeded(t *testing.T) {
	log, arguments := newAudit(t)
	p := startPlane(t, localplane.Options{ControllerManager: true, APIServerArgs: arguments})
	port := freePorts(t, 1)[0]
	chosen := object{
		"agent":   object{"enabled": true, "nriSocket": "", "port": port},
		"metrics": object{"readers": list{object{"name": "prometheus", "namespace": "default"}}},
	}
	p.install(t, release(crdsChart, nil))
	p.expectEstablished(t)
	if notes := p.install(t, release(mainChart, chosen)); !strings.Contains(notes, "installing the chart again and deleting the McKubes then puts it right") {
		t.Errorf("the notes do not tell how a node becomes what it was before:\n%s", notes)
	}
	manifests := template(t, chosen)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	p.apply(t, node, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "prometheus"}})
	p.apply(t, &mckubev1alpha1.RTNode{ObjectMeta: metav1.ObjectMeta{
		Name: "mine", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
	}})
	fast := newFastPath(t, 900_000)
	kubelet := p.runAgent(t, containerNamed(t, daemonSet(t, chosen["agent"].(object)), "agent").Args, p.tokenOn(t, "mine"), fast)

	p.expectReported(t)
	p.expectALease(t)
	p.expectCores(t, "core-1 900000")
	fast.capacity(500_000)
	p.expectCores(t, "core-1 500000")
	p.prepareClaim(t, kubelet)
	scraped := p.scrape(t, port, "prometheus", http.StatusOK)
	p.scrape(t, port, "default", http.StatusForbidden)
	for _, r := range alerts(t, object{}).all() {
		for _, s := range selector.FindAllStringSubmatch(r.Expr, -1) {
			// There is no container here, and no state of one is taken.
			ofContainer := strings.HasPrefix(s[1], "mainspring_container_") || strings.HasPrefix(s[1], "mainspring_checkpoint")
			if strings.Contains(s[2], `job="mainspring-agent"`) && !ofContainer && !strings.Contains(scraped, "\n"+s[1]) {
				t.Errorf("%s reads %s, which has no sample", r.Alert, s[1])
			}
		}
	}
	fast.capacity(0)
	p.expectCores(t)

	var granted []right
	for _, r := range roles(t, manifests) {
		if r.name == "mainspring-agent" {
			granted = append(granted, taken(r)...)
		}
	}
	log.expectRights(t, agentUser, granted, agentUnexercised)
}

// fastPath answers as the real one does, with one core.
type fastPath struct {
	socket string
	report atomic.Pointer[table.Report]
}

func newFastPath(t *testing.T, capacity int64) *fastPath {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent-") // a path short enough for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	f := &fastPath{socket: filepath.Join(dir, "fastpath.sock")}
	f.capacity(capacity)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_ = json.NewEncoder(w).Encode(f.report.Load())
		}
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return f
}

// capacity of core 1; with 0 it takes no work.
func (f *fastPath) capacity(ppm int64) {
	f.report.Store(&table.Report{
		Instance: "1", Version: "test", Backend: "fifo", Realtime: true, GranularityUs: 60,
		Cores: []table.CoreReport{{ID: 1, CapacityPpm: ppm}}, Servers: []table.ServerReport{},
	})
}

// runAgent runs it until the test ends, and returns the folder that it takes for the kubelet's.
func (p plane) runAgent(t *testing.T, args []string, token string, fast *fastPath) string {
	t.Helper()
	binary, err := build("agent")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(fast.socket)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: p.RESTConfig().Host, CertificateAuthorityData: p.RESTConfig().CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	kubelet := filepath.Join(dir, "kubelet")
	args = append(args, "--kubeconfig="+kubeconfig, "--node-name=mine", "--fastpath-socket="+fast.socket,
		"--state-dir="+filepath.Join(dir, "state"), "--kubelet-dir="+kubelet, "--cdi-dir="+filepath.Join(dir, "cdi"))
	ctx, cancel := context.WithCancel(context.Background())
	out, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("the agent's last words:\n%s", tail(t, out.Name()))
		}
	})
	return kubelet
}

// expectReported waits for what the agent writes on its own: RTNode.status, and annotations of the Node.
func (p plane) expectReported(t *testing.T) {
	t.Helper()
	soon(t, func(g gomega.Gomega) {
		r, n := &mckubev1alpha1.RTNode{}, &corev1.Node{}
		g.Expect(p.client.Get(t.Context(), client.ObjectKey{Name: "mine"}, r)).To(gomega.Succeed())
		g.Expect(p.client.Get(t.Context(), client.ObjectKey{Name: "mine"}, n)).To(gomega.Succeed())
		g.Expect(r.Status.Backend).To(gomega.Equal("fifo"))
		g.Expect(n.Annotations).To(gomega.HaveKey("mckube.sdv.com/cpu-usage"))
	})
}

// expectALease expects that some agent shows by its Lease that it lives.
func (p plane) expectALease(t *testing.T) {
	t.Helper()
	soon(t, func(g gomega.Gomega) {
		list := &coordinationv1.LeaseList{}
		g.Expect(p.client.List(t.Context(), list, client.InNamespace(heartbeat.Namespace))).To(gomega.Succeed())
		g.Expect(list.Items).To(gomega.ContainElement(gomega.HaveField("Name", gomega.HavePrefix(heartbeat.Name("")))))
	})
}

func (p plane) expectCores(t *testing.T, want ...string) {
	t.Helper()
	soon(t, func(g gomega.Gomega) {
		list := &resourcev1.ResourceSliceList{}
		g.Expect(p.client.List(t.Context(), list)).To(gomega.Succeed())
		var got []string
		for _, s := range list.Items {
			for _, d := range s.Spec.Devices {
				capacity := d.Capacity[mckubev1alpha1.CapacityRTBandwidth].Value
				got = append(got, fmt.Sprintf("%s %d", d.Name, capacity.Value()))
			}
		}
		g.Expect(got).To(gomega.Equal(want))
	})
}

// prepareClaim does what the kubelet does for a pod with a claim on core 1.
func (p plane) prepareClaim(t *testing.T, kubelet string) {
	t.Helper()
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: test.Namespace, Name: "claim"}}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "core", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: mckubev1alpha1.DeviceClassRTCore, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
	}}}
	p.apply(t, claim)
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{
		Request: "core", Driver: mckubev1alpha1.DriverCPU, Pool: "mine", Device: "core-1", ShareID: ptr.To(types.UID("aaaaaaaa-0000-4000-8000-000000000000")),
		ConsumedCapacity: map[resourcev1.QualifiedName]resource.Quantity{mckubev1alpha1.CapacityRTBandwidth: resource.MustParse("100000")},
	}}}}
	// A pod that is there: who is not loses his place to the controller of claims.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: test.Namespace, Name: "p"}, Spec: corev1.PodSpec{
		NodeName: "mine", Containers: []corev1.Container{{Name: "app", Image: "app"}},
		ResourceClaims: []corev1.PodResourceClaim{{Name: "core", ResourceClaimName: &claim.Name}},
	}}
	soon(t, func(g gomega.Gomega) { // the namespace's ServiceAccount comes by itself
		g.Expect(p.client.Create(t.Context(), pod)).To(gomega.Succeed())
	})
	claim.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}}
	if err := p.client.Status().Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("unix://"+filepath.Join(kubelet, "plugins", mckubev1alpha1.DriverCPU, "dra.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	soon(t, func(g gomega.Gomega) {
		answer, err := dra.NewDRAPluginClient(conn).NodePrepareResources(t.Context(), &dra.NodePrepareResourcesRequest{
			Claims: []*dra.Claim{{Namespace: claim.Namespace, Name: claim.Name, Uid: string(claim.UID)}},
		})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(answer.Claims[string(claim.UID)].GetError()).To(gomega.BeEmpty())
	})
}
