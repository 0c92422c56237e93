package rtruntime_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// fixedPriority is a node of RT groups. A container of 60 ms in 100 ms runs on core 1 (of 0 and 1).
func fixedPriority(t testing.TB) *machine {
	t.Helper()
	m := newMachine(2)
	m.backend = "rtgroup"
	m.cores = m.cores[1:]
	m.add("old", "Middle", 20, 20, 1)
	m.settle(t, rtruntime.Pressure{}, start)
	m.apply()
	m.agent(metav1.ConditionTrue)
	return m
}

func (m *machine) conditions(pod string) mcv1.McKubeStatus {
	return rtruntime.StatusOf(statetest.Build(m.objects()...), m.mckubes[pod], start, nil)
}

// The scheduler adds up bandwidths: 20.1 + 60.1 of 90 %. Under fixed priorities the two hold up each other for longer
// than a period. The McKube of the new container says so with the numbers, no spec has the container, and the running
// one does not notice.
func TestClaimsThatFitAreNotAdmittedUnderFixedPriorities(t *testing.T) {
	m := fixedPriority(t)
	before := spec(m.rtNode.Spec)
	m.add("new", "High", 60, 60, 1)
	d := m.settle(t, rtruntime.Pressure{}, start)
	v, refused := d.Refused["new/app"]
	if !refused || v.Test != rt.TestAMC || v.Reason != rt.ReasonResponseTime || v.Need+v.Used > v.Limit {
		t.Fatalf("the verdict is %s", v)
	}
	expectSpec(t, d, before)
	status := m.conditions("new")
	if got, want := reasons(status), "Admitted=False/ResponseTimeTooLong Placed=False/ResponseTimeTooLong Configured=False/ResponseTimeTooLong Ready=False/ResponseTimeTooLong"; got != want {
		t.Errorf("the newcomer's conditions are %s, want %s", got, want)
	}
	message := meta.FindStatusCondition(status.Conditions, mcv1.ConditionAdmitted).Message
	for _, want := range []string{"pod new: claim new-claim is on core 1 of node n and takes 60.1 % of it", "fit by their sum (60.1 % and 20.1 % of 90.0 %)", "AMC-rtb", "too late", "re-create the pod"} {
		if !strings.Contains(message, want) {
			t.Errorf("%q is missing from %q", want, message)
		}
	}
	if got := reasons(m.conditions("old")); got != allReady {
		t.Errorf("the one that runs: %s", got)
	}
}

// Another core of the node may take it, though its claim is elsewhere: then nothing is wrong.
func TestAnotherCoreTakesWhatItsOwnCannot(t *testing.T) {
	m := fixedPriority(t)
	m.cores = statetest.Cores(2)
	m.add("new", "High", 60, 60, 1)
	if got := reasons(m.conditions("new")); !strings.HasPrefix(got, "Admitted=True/Ready Placed=False/NotPlaced") {
		t.Errorf("before it is placed: %s", got)
	}
	d := m.settle(t, rtruntime.Pressure{}, start)
	expectSpec(t, d, "new@0 low 60/60, old@1 low 20/20")
	m.apply()
	for _, pod := range []string{"new", "old"} {
		if got := reasons(m.conditions(pod)); got != allReady {
			t.Errorf("%s: %s", pod, got)
		}
	}
}

// Whatever the scheduler allocates on a node of fixed priorities, each core of the spec passes the response-time test,
// and every McKube whose container is not in the spec says why.
func TestFixedPriorityCoresAreNeverOverbooked(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		m := newMachine(3)
		m.backend = rapid.SampledFrom([]string{"rtgroup", "fifo"}).Draw(r, "backend")
		free := []int64{90, 90, 90}
		for i := range rapid.IntRange(1, 7).Draw(r, "n") {
			low := rapid.Int64Range(2, 40).Draw(r, "low")
			high := low + rapid.Int64Range(0, 20).Draw(r, "more")
			core := rapid.IntRange(0, 2).Draw(r, "core")
			if high+1 > free[core] { // the scheduler would not
				continue
			}
			free[core] -= high + 1
			m.add(string(rune('a'+i)), rapid.SampledFrom([]mcv1.Criticality{"High", "Middle", "Low"}).Draw(r, "criticality"), low, high, core)
			if rapid.Bool().Draw(r, "settle") {
				m.settle(t, rtruntime.Pressure{}, start)
			}
		}
		d := m.settle(t, rtruntime.Pressure{}, start)
		m.apply()
		m.agent(metav1.ConditionTrue)
		on := map[int32][]rt.Server{}
		for _, e := range d.Spec.Servers {
			criticality, err := rt.ParseCriticality(e.Criticality)
			if err != nil {
				r.Fatal(err)
			}
			on[e.Cores[0]] = append(on[e.Cores[0]], rt.Server{ID: e.Pod, Criticality: criticality, Period: e.PeriodUs, Deadline: e.DeadlineUs, Low: e.BudgetLowUs, High: e.BudgetHighUs})
		}
		for core, servers := range on {
			c := m.cores[core]
			c.Policy = rt.FixedPriority
			if v := rt.Holds(c, servers); !v.Admitted {
				r.Fatalf("core %d: %s", core, v)
			}
		}
		if len(d.Spec.Servers)+len(d.Refused) != len(m.mckubes) {
			r.Fatalf("%d in the spec, %d refused, of %d", len(d.Spec.Servers), len(d.Refused), len(m.mckubes))
		}
		for name := range m.mckubes {
			_, refused := d.Refused[name+"/app"]
			ready := meta.IsStatusConditionTrue(m.conditions(name).Conditions, mcv1.ConditionReady)
			if refused == ready {
				r.Fatalf("%s: refused %t, and its conditions say %s", name, refused, reasons(m.conditions(name)))
			}
		}
	})
}

// The same through both loops and an API server, until the first leaves: then the other container gets its core.
func TestANodeOfFixedPrioritiesOnAnAPIServer(t *testing.T) {
	c := newCluster(t)
	n := c.nodeOf("n", "rtgroup", 1)
	o := c.office()
	old := c.run("old", n.Name, "Middle", 20, 20, 0)
	c.run("new", n.Name, "High", 60, 60, 0)
	settle := func() { o.settle([]string{n.Name}, "old", "new") }
	o.lookAndAct(n.Name)
	servers := c.rtNode(n.Name).Spec.Servers
	if len(servers) != 1 || servers[0].Pod != c.prefix+"new" {
		t.Fatalf("of two newcomers the more critical is placed, not %+v", servers)
	}
	settle()
	o.is("new", mcv1.ConditionAdmitted, metav1.ConditionTrue, "Ready")
	for _, condition := range []string{mcv1.ConditionAdmitted, mcv1.ConditionPlaced, mcv1.ConditionReady} {
		o.is("old", condition, metav1.ConditionFalse, rt.ReasonResponseTime)
	}
	told := strings.Join(o.told.reasons(old.Name), " ")
	if !strings.Contains(told, "NotAdmitted") {
		t.Errorf("told %s", told)
	}
	if plans := c.rtNode(n.Name).Spec.Plan; len(plans) != 1 || plans[0].Test != rt.TestAMC {
		t.Errorf("the plan is %+v", plans)
	}
	c.must(c.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: c.prefix + "new"}}, client.GracePeriodSeconds(0)))
	settle()
	o.is("old", mcv1.ConditionAdmitted, metav1.ConditionTrue, "Ready")
	if servers := c.rtNode(n.Name).Spec.Servers; len(servers) != 1 || servers[0].Pod != old.Name {
		t.Errorf("servers %+v", servers)
	}
}
