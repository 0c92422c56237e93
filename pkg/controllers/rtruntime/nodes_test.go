package rtruntime_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
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

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
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

// cluster is an API server in which tests play scheduler, kubelets and agents. Its objects have the
// test's own names, because the server is shared.
type cluster struct {
	testing.TB
	client.Client
	prefix string
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	p, err := plane()
	if err != nil {
		t.Fatal(err)
	}
	s, err := scheme()
	if err != nil {
		t.Fatal(err)
	}
	config := p.RESTConfig()
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{TB: t, Client: c, prefix: strings.ToLower(strings.Map(letters, t.Name())) + "-"}
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
	n := statetest.Node(c.prefix+name, "")
	c.must(c.Create(c.Context(), n))
	s := statetest.Slice(n, statetest.Cores(cores)...)
	s.ObjectMeta = metav1.ObjectMeta{Name: n.Name + "-" + string(n.UID), OwnerReferences: s.OwnerReferences}
	c.must(c.Create(c.Context(), s))
	return n
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
}

func (c *cluster) loop() *loop {
	own := clocktesting.NewFakeClock(start)
	l := &loop{cluster: c, clock: clocktesting.NewFakeClock(start), told: &told{}, store: state.New(state.Options{Clock: own})}
	l.store.Complete()
	own.Step(time.Minute) // claims that earlier tests left name nodes that are gone
	l.Reconciler = rtruntime.NewNodes(rtruntime.Dependencies{
		Clock: l.clock, Client: c.Client, Recorder: l.told, Store: l.store, FreedCapacity: func() {},
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

func TestARTNodeIsMadeForANodeThatOffersCores(t *testing.T) {
	c := newCluster(t)
	n := c.node("n", 2)
	plain := statetest.Node(c.prefix+"plain", "")
	c.must(c.Create(t.Context(), plain))
	c.run("a", n.Name, "High", 20, 40, 1)
	l := c.loop()
	l.lookAndAct(n.Name)
	l.act(plain.Name)
	r := c.rtNode(n.Name)
	if !metav1.IsControlledBy(r, n) {
		t.Errorf("its owners are %v", r.OwnerReferences)
	}
	if got, want := spec(r.Spec), c.prefix+"a@1 low 20/40"; got != want {
		t.Errorf("its spec is %s, want %s", got, want)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Name: plain.Name}, &v1alpha1.RTNode{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("RTNode of a node without cores: %v", err)
	}
	if got := l.told.reasons(c.prefix + "a"); !slices.Equal(got, []string{"Placed", "Placed"}) {
		t.Errorf("told on pod and McKube: %v", got)
	}
	l.lookAndAct(n.Name)
	if again := c.rtNode(n.Name); again.Generation != r.Generation || len(l.told.reasons(c.prefix+"a")) != 2 {
		t.Errorf("a second look wrote generation %d after %d, told %v", again.Generation, r.Generation, l.told.reasons(c.prefix+"a"))
	}
}

// An RTNode of an earlier Node of the name goes, it and no other, and the new Node gets its own.
func TestAStaleRTNodeIsReplaced(t *testing.T) {
	c := newCluster(t)
	n := c.node("n", 2)
	l := c.loop()
	l.lookAndAct(n.Name)
	first := c.rtNode(n.Name)
	c.must(c.Delete(t.Context(), n))
	l.lookAndAct(n.Name) // the node has gone: nothing to do, the garbage collector takes the RTNode
	if c.rtNode(n.Name).UID != first.UID {
		t.Error("the RTNode of a node that has gone was touched")
	}
	n = c.node("n", 2)
	c.run("a", n.Name, "High", 20, 40, 1)
	if wait := l.lookAndAct(n.Name); wait <= 0 || wait > time.Second {
		t.Errorf("after deleting it looks again after %s", wait)
	}
	l.lookAndAct(n.Name)
	second := c.rtNode(n.Name)
	if second.UID == first.UID || !metav1.IsControlledBy(second, n) || len(second.Spec.Servers) != 1 {
		t.Errorf("the RTNode is %+v", second)
	}
	// One whose cache still shows the first must not delete the second.
	late := c.loop()
	late.look()
	stale := first.DeepCopy()
	c.must(late.store.Update(stale))
	late.act(n.Name)
	if c.rtNode(n.Name).UID != second.UID {
		t.Error("a late controller deleted the new RTNode")
	}
}

// The update carries the version that was decided on: whoever wrote meanwhile wins, and it is tried again soon.
func TestAConflictIsTriedAgain(t *testing.T) {
	c := newCluster(t)
	n := c.node("n", 2)
	l := c.loop()
	l.lookAndAct(n.Name)
	c.run("a", n.Name, "High", 20, 40, 1)
	l.look()
	c.agentReports(n.Name, heartbeat(start))
	if wait := l.act(n.Name); wait <= 0 || wait > time.Second {
		t.Errorf("after a conflict it looks again after %s", wait)
	}
	if r := c.rtNode(n.Name); len(r.Spec.Servers) != 0 || len(l.told.reasons(c.prefix+"a")) != 0 {
		t.Errorf("the refused update left %s and told %v", spec(r.Spec), l.told.reasons(c.prefix+"a"))
	}
	l.lookAndAct(n.Name)
	if r := c.rtNode(n.Name); len(r.Spec.Servers) != 1 {
		t.Errorf("the spec is %s", spec(r.Spec))
	}
}

// Silence is judged by the controller's clock since the heartbeat last changed: what the agent's clock says
// does not matter. The agent's own conditions stay.
func TestAnAgentIsSilentWhenItsHeartbeatStays(t *testing.T) {
	c := newCluster(t)
	n := c.node("n", 1)
	l := c.loop()
	expect := func(status metav1.ConditionStatus, reason string) {
		t.Helper()
		if got := c.alive(n.Name); got.Status != status || got.Reason != reason {
			t.Errorf("AgentAlive is %s %s, want %s %s", got.Status, got.Reason, status, reason)
		}
	}
	l.lookAndAct(n.Name) // makes it
	l.lookAndAct(n.Name)
	expect(metav1.ConditionUnknown, "AgentNotSeen")
	for _, at := range []time.Time{start, start.Add(-24 * time.Hour), start.Add(24 * time.Hour)} { // an agent whose clock jumps
		c.agentReports(n.Name, heartbeat(at))
		if wait := l.lookAndAct(n.Name); wait != 10*time.Second {
			t.Errorf("looks again after %s", wait)
		}
		expect(metav1.ConditionTrue, "Heartbeat")
		l.clock.Step(9 * time.Second)
		l.lookAndAct(n.Name)
		expect(metav1.ConditionTrue, "Heartbeat")
	}
	l.clock.Step(time.Second)
	l.lookAndAct(n.Name)
	expect(metav1.ConditionFalse, "AgentSilent")
	since := c.alive(n.Name).LastTransitionTime
	l.clock.Step(time.Hour)
	l.lookAndAct(n.Name)
	if got := c.alive(n.Name).LastTransitionTime; !got.Equal(&since) {
		t.Errorf("silent since %s, then since %s", since, got)
	}
	c.agentReports(n.Name, heartbeat(start.Add(time.Minute)))
	l.lookAndAct(n.Name)
	expect(metav1.ConditionTrue, "Heartbeat")
	if got := l.told.reasons(n.Name); !slices.Equal(got, []string{"AgentSilent", "AgentAlive"}) {
		t.Errorf("told %v", got)
	}
	if !meta.IsStatusConditionTrue(c.rtNode(n.Name).Status.Conditions, v1alpha1.ConditionReady) {
		t.Error("the agent's condition Ready is gone")
	}
	// A clock of ours that goes back makes nobody silent, nor lets silence pass unseen.
	l.clock.SetTime(start.Add(-time.Hour))
	l.lookAndAct(n.Name)
	expect(metav1.ConditionTrue, "Heartbeat")
	l.clock.Step(10 * time.Second)
	l.lookAndAct(n.Name)
	expect(metav1.ConditionFalse, "AgentSilent")
}

// Raises and their end are told and counted once, as the agent reports them; so is pressure.
func TestLevelsAndPressureAreToldOnce(t *testing.T) {
	c := newCluster(t)
	n := c.node("n", 1)
	p := c.run("a", n.Name, "High", 20, 40, 0)
	l := c.loop()
	report := func(level string, budget int64) {
		t.Helper()
		status := heartbeat(l.clock.Now())
		status.Servers = []v1alpha1.RTServerStatus{{PodUID: p.UID, Container: "app", BudgetUs: budget, PeriodUs: 100_000, Cores: []int32{0}, Level: level}}
		c.agentReports(n.Name, status)
		l.lookAndAct(n.Name)
		l.lookAndAct(n.Name)
		l.clock.Step(time.Second)
	}
	busy := func(value string) {
		t.Helper()
		before := n.DeepCopy()
		n.Annotations = map[string]string{mcv1.AnnotationCPUBusy: value}
		c.must(c.Patch(t.Context(), n, client.MergeFrom(before)))
		l.lookAndAct(n.Name)
		l.lookAndAct(n.Name)
	}
	l.lookAndAct(n.Name)
	report("low", 20_000)
	busy("true")
	report("hi", 40_000)
	busy("false")
	l.clock.Step(5 * time.Second)
	l.lookAndAct(n.Name)
	report("low", 20_000)
	if got, want := strings.Join(l.told.reasons(p.Name), " "), "Placed Placed Escalated Escalated Recovered Recovered"; got != want {
		t.Errorf("told on pod and McKube: %s, want %s", got, want)
	}
	if got, want := strings.Join(l.told.reasons(n.Name), " "), "CPUPressure CPUPressureOver"; got != want {
		t.Errorf("told on the node: %s, want %s", got, want)
	}
}

// A refusal is told on pod and McKube once, and again when it was over in between.
func TestARefusalIsToldOnce(t *testing.T) {
	c := newCluster(t)
	n := c.node("n", 1)
	p := c.run("a", n.Name, "High", 20, 40, 0)
	m := &mcv1.McKube{}
	c.must(c.Get(t.Context(), client.ObjectKeyFromObject(p), m))
	budget := func(us int64) {
		t.Helper()
		m.Spec.RTSettings.RuntimeHi = us
		c.must(c.Update(t.Context(), m))
	}
	l := c.loop()
	l.lookAndAct(n.Name)
	budget(45_000)
	r := c.rtNode(n.Name)
	r.Spec = v1alpha1.RTNodeSpec{}
	c.must(c.Update(t.Context(), r)) // a newcomer again, and its claim no longer pays
	l.lookAndAct(n.Name)
	l.lookAndAct(n.Name)
	if got, want := strings.Join(l.told.reasons(p.Name), " "), "Placed Placed NotAdmitted NotAdmitted"; got != want {
		t.Errorf("told %s, want %s", got, want)
	}
	budget(40_000)
	l.lookAndAct(n.Name)
	if got := c.rtNode(n.Name).Spec.Servers; len(got) != 1 || len(l.told.reasons(p.Name)) != 6 {
		t.Errorf("servers are %v, told %v", got, l.told.reasons(p.Name))
	}
}

func TestSeriesEndWithTheNode(t *testing.T) {
	c := newCluster(t)
	n := c.node("n", 1)
	c.run("a", n.Name, "High", 20, 40, 0)
	l := c.loop()
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.Nodes)
	count := func() (series int) {
		families, err := registry.Gather()
		c.must(err)
		for _, f := range families {
			for _, m := range f.Metric {
				for _, label := range m.Label {
					if label.GetName() == "node" && label.GetValue() == n.Name {
						series++
					}
				}
			}
		}
		return series
	}
	l.lookAndAct(n.Name)
	l.lookAndAct(n.Name)
	if count() != 5 { // granularity, alive, and three of the core that holds a server
		t.Errorf("the node has %d series", count())
	}
	c.must(c.Delete(t.Context(), n))
	l.lookAndAct(n.Name)
	if count() != 0 {
		t.Errorf("%d series are left", count())
	}
}

// What somebody else writes into a spec is put right.
func TestAForeignWriteIsPutRight(t *testing.T) {
	c := newCluster(t)
	n := c.node("n", 2)
	c.run("a", n.Name, "High", 20, 40, 1)
	l := c.loop()
	l.lookAndAct(n.Name)
	r := c.rtNode(n.Name)
	r.Spec.Servers[0].BudgetHighUs = 95_000
	r.Spec.Servers[0].Level = "hi"
	c.must(c.Update(t.Context(), r))
	l.lookAndAct(n.Name)
	if got, want := spec(c.rtNode(n.Name).Spec), c.prefix+"a@1 low 20/40"; !strings.HasPrefix(got, strings.TrimSuffix(want, "low 20/40")) || strings.Contains(got, "95") {
		t.Errorf("the spec is %s, want %s", got, want)
	}
}
