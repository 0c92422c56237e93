package rtruntime_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

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
	if got := l.told.reasons(c.prefix + "a"); !slices.Equal(got, []string{"Placed"}) {
		t.Errorf("told on the pod: %v", got)
	}
	l.lookAndAct(n.Name)
	if again := c.rtNode(n.Name); again.Generation != r.Generation || len(l.told.reasons(c.prefix+"a")) != 1 {
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

// The update carries the spec that was decided on. A writer that wrote another meanwhile wins, and the loop tries again
// soon.
func TestAConflictIsTriedAgain(t *testing.T) {
	c := newCluster(t)
	n := c.node("n", 2)
	l := c.loop()
	l.lookAndAct(n.Name)
	c.run("a", n.Name, "High", 20, 40, 1)
	l.look()
	c.run("b", n.Name, "High", 20, 40, 0)
	c.loop().lookAndAct(n.Name)
	if wait := l.act(n.Name); wait <= 0 || wait > time.Second {
		t.Errorf("after a conflict it looks again after %s", wait)
	}
	if r := c.rtNode(n.Name); len(r.Spec.Servers) != 2 || len(l.told.reasons(c.prefix+"a")) != 0 {
		t.Errorf("the refused update left %s and told %v", spec(r.Spec), l.told.reasons(c.prefix+"a"))
	}
	l.lookAndAct(n.Name)
	if r := c.rtNode(n.Name); len(r.Spec.Servers) != 2 {
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
	// A clock of ours that goes back makes no agent silent, nor lets silence pass unseen.
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
	if got, want := strings.Join(l.told.reasons(p.Name), " "), "Placed Escalated Escalated Recovered Recovered"; got != want {
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
	c.must(c.Update(t.Context(), r)) // a new container again, and its claim no longer pays
	l.lookAndAct(n.Name)
	l.lookAndAct(n.Name)
	if got, want := strings.Join(l.told.reasons(p.Name), " "), "Placed NotAdmitted NotAdmitted"; got != want {
		t.Errorf("told %s, want %s", got, want)
	}
	budget(40_000)
	l.lookAndAct(n.Name)
	if got := c.rtNode(n.Name).Spec.Servers; len(got) != 1 || len(l.told.reasons(p.Name)) != 4 {
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

// The loop puts right what another writer puts into a spec.
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
