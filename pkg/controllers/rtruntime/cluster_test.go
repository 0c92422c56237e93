package rtruntime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpenterevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
)

// told records Events.
type told struct {
	mu   sync.Mutex
	list []karpenterevents.Event
}

func (r *told) Publish(list ...karpenterevents.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, list...)
}

// reasons of the Events on objects of the name, in order.
func (r *told) reasons(name string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, e := range r.list {
		if e.InvolvedObject.(metav1.Object).GetName() == name {
			out = append(out, e.Reason)
		}
	}
	return out
}

// saying is the message of the last Event of a reason; empty for none.
func (r *told) saying(reason string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range slices.Backward(r.list) {
		if e.Reason == reason {
			return e.Message
		}
	}
	return ""
}

// cluster is an API server in which tests play scheduler, kubelets and agents. Its objects have the
// test's own names, because the server is shared.
type cluster struct {
	testing.TB
	client.Client
	prefix string
}

// clusters counts them, so that a test which runs twice has new names.
var clusters atomic.Int64

func newCluster(t testing.TB) *cluster {
	t.Helper()
	c := apiserver.Near(t, apiserver.Scheme(t))
	t.Cleanup(func() { empty(t, c) })
	return &cluster{TB: t, Client: c, prefix: fmt.Sprintf("%s-%d-", strings.ToLower(strings.Map(letters, t.Name())), clusters.Add(1))}
}

// empty takes away what other tests would see.
func empty(t testing.TB, c client.Client) {
	t.Helper()
	apiserver.Empty(t, c, &v1alpha1.RTActionList{}, &corev1.PodList{}, &mcv1.McKubeList{}, &resourcev1.ResourceClaimTemplateList{},
		&resourcev1.ResourceClaimList{}, &resourcev1.ResourceSliceList{}, &v1alpha1.RTNodeList{}, &corev1.NodeList{})
}

func letters(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
		return r
	}
	return -1
}

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// node makes a Node whose agent offers cores.
func (c *cluster) node(name string, cores int) *corev1.Node {
	c.Helper()
	return c.nodeOf(name, "simulated", cores)
}

func (c *cluster) nodeOf(name, backend string, cores int) *corev1.Node {
	c.Helper()
	n := statetest.Node(c.prefix+name, "")
	c.must(c.Create(c.Context(), n))
	s := statetest.SliceOf(n, backend, statetest.Cores(cores)...)
	s.ObjectMeta = metav1.ObjectMeta{Name: n.Name + "-" + string(n.UID), OwnerReferences: s.OwnerReferences}
	c.must(c.Create(c.Context(), s))
	return n
}

// reserve has the agent of a node say what each of its cores keeps for raises, out of its capacity.
func (c *cluster) reserve(n *corev1.Node, ppm ...rt.PPM) {
	c.Helper()
	s := &resourcev1.ResourceSlice{}
	c.must(c.Get(c.Context(), client.ObjectKey{Name: n.Name + "-" + string(n.UID)}, s))
	cores := statetest.Cores(len(ppm))
	for i := range cores {
		cores[i].Capacity, cores[i].EscalationReserve = cores[i].Capacity-ppm[i], ppm[i]
	}
	s.Spec.Devices = statetest.SliceOf(n, "simulated", cores...).Spec.Devices
	c.must(c.Update(c.Context(), s))
}

// run has a container of a new pod run on the node, with a McKube and a claim on the core.
func (c *cluster) run(name, node string, criticality mcv1.Criticality, lowMs, highMs int64, core int) *corev1.Pod {
	c.Helper()
	return c.runAs(statetest.McKube("default", c.prefix+name, c.prefix+name, criticality, lowMs, highMs), node, core)
}

// runPreferring is run for a container of one budget that prefers cores.
func (c *cluster) runPreferring(name, node string, criticality mcv1.Criticality, budgetMs int64, core int, prefers string) *corev1.Pod {
	c.Helper()
	m := statetest.McKube("default", c.prefix+name, c.prefix+name, criticality, budgetMs, budgetMs)
	m.Spec.RTSettings.Core = &prefers
	return c.runAs(m, node, core)
}

func (c *cluster) runAs(m *mcv1.McKube, node string, core int) *corev1.Pod {
	c.Helper()
	name := m.Name
	m.UID = ""
	c.must(c.Create(c.Context(), m))
	p := statetest.On(statetest.WithClaim(statetest.Pod("default", name, "", "app"), "app", name+"-claim"), node)
	p.Spec.Containers[0].Image = "none"
	status := p.Status
	c.must(c.Create(c.Context(), p))
	p.Status = status
	c.must(c.Status().Update(c.Context(), p))
	server, err := rtdra.ServerOf(m, p.UID, "app")
	c.must(err)
	c.claim(p, node, core, server.Charge(granularity))
	return p
}

func (c *cluster) claim(p *corev1.Pod, node string, core int, ppm rt.PPM) {
	c.Helper()
	claim := statetest.Claim(p, p.Name+"-claim", "app", node, core, ppm)
	status := claim.Status
	status.Allocation.Devices.Results[0].ShareID = ptr.To(types.UID("aaaaaaaa-0000-4000-8000-000000000000"))
	claim.UID = ""
	claim.Spec.Devices.Requests[0].Exactly.AllocationMode, claim.Spec.Devices.Requests[0].Exactly.Count = resourcev1.DeviceAllocationModeExactCount, 1
	c.must(c.Create(c.Context(), claim))
	claim.Status = status
	c.must(c.Status().Update(c.Context(), claim))
}

func (c *cluster) rtNode(name string) *v1alpha1.RTNode {
	c.Helper()
	r := &v1alpha1.RTNode{}
	c.must(c.Get(c.Context(), client.ObjectKey{Name: name}, r))
	return r
}

func (c *cluster) alive(name string) metav1.Condition {
	c.Helper()
	found := meta.FindStatusCondition(c.rtNode(name).Status.Conditions, v1alpha1.ConditionAgentAlive)
	if found == nil {
		c.Fatalf("RTNode %s has no condition %s", name, v1alpha1.ConditionAgentAlive)
	}
	return *found
}

// agentReports applies a status as the agent does.
func (c *cluster) agentReports(name string, status v1alpha1.RTNodeStatus) {
	c.Helper()
	r := c.rtNode(name)
	applied := &v1alpha1.RTNode{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "RTNode"},
		ObjectMeta: metav1.ObjectMeta{Name: r.Name, UID: r.UID}, Status: status,
	}
	data, err := json.Marshal(applied)
	c.must(err)
	c.must(c.Status().Patch(c.Context(), applied, client.RawPatch(types.ApplyPatchType, data), client.FieldOwner("mainspring-agent"), client.ForceOwnership))
}

func heartbeat(at time.Time) v1alpha1.RTNodeStatus {
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Applied", LastTransitionTime: metav1.NewTime(start)}
	return v1alpha1.RTNodeStatus{HeartbeatTime: ptr.To(metav1.NewMicroTime(at)), Conditions: []metav1.Condition{ready}}
}

// loop is a node loop with a cache of its own, which the test fills.
type loop struct {
	*cluster
	reconcile.Reconciler
	store *state.Store
	seen  map[client.Object]bool
	clock *clocktesting.FakeClock
	told  *told
	// rearrange does the actions that running lists.
	rearrange *rtruntime.Rearrange
	running   func() []*v1alpha1.RTAction
}

func (c *cluster) loop() *loop { return c.loopAt(clocktesting.NewFakeClock(start)) }

func (c *cluster) loopAt(clk *clocktesting.FakeClock) *loop {
	own := clocktesting.NewFakeClock(start)
	l := &loop{cluster: c, clock: clk, told: &told{}, store: state.New(state.Options{Clock: own})}
	l.running = func() []*v1alpha1.RTAction { return nil }
	l.store.Complete()
	own.Step(time.Minute) // claims that earlier tests left name nodes that are gone
	l.rearrange = rtruntime.NewRearrange(rtruntime.RearrangeDependencies{
		API: c.Client, Store: l.store, Clock: l.clock, Granularity: granularity,
		Running: func() []*v1alpha1.RTAction { return l.running() },
	})
	l.Reconciler = rtruntime.NewNodes(rtruntime.Dependencies{
		Clock: l.clock, Client: c.Client, Recorder: l.told, Store: l.store, FreedCapacity: func() {}, Rearrange: l.rearrange,
		InFlight: func(context.Context, *corev1.Pod) bool { return false },
		Options:  rtruntime.Options{Granularity: granularity, AgentTimeout: 10 * time.Second},
	}).(reconcile.Reconciler)
	return l
}

// look fills the cache with what the API server has now; what is gone leaves it.
func (l *loop) look() {
	l.Helper()
	now := map[client.Object]bool{}
	for _, list := range []client.ObjectList{
		&corev1.NodeList{}, &resourcev1.ResourceSliceList{}, &corev1.PodList{}, &mcv1.McKubeList{}, &resourcev1.ResourceClaimList{}, &v1alpha1.RTNodeList{},
	} {
		l.must(l.List(l.Context(), list))
		l.must(meta.EachListItem(list, func(o runtime.Object) error {
			now[o.(client.Object)] = true
			return l.store.Update(o)
		}))
	}
	for old := range l.seen {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(now)), func(o client.Object) bool { return o.GetUID() == old.GetUID() }) {
			l.must(l.store.Delete(old))
		}
	}
	l.seen = now
}

// act reconciles the node on what the cache has.
func (l *loop) act(name string) time.Duration {
	l.Helper()
	result, err := l.Reconcile(l.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	l.must(err)
	return result.RequeueAfter
}

func (l *loop) lookAndAct(name string) time.Duration {
	l.Helper()
	l.look()
	return l.act(name)
}
