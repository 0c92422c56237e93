package controllers

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
)

// planning is a provisioner that opens machines for a pod, as Karpenter's cluster state hears of them.
type planning struct {
	*testing.T
	clock   *clocktesting.FakeClock
	api     client.Client
	cluster *state.Cluster
	pod     *corev1.Pod
	waits   func() bool
	opened  int
}

func newPlanning(t *testing.T, patience time.Duration) *planning {
	t.Helper()
	clk := clocktesting.NewFakeClock(time.Now())
	api := crfake.NewFakeClient()
	o := &planning{T: t, clock: clk, api: api, cluster: state.NewCluster(clk, api, fake.NewCloudProvider())}
	o.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "car", Name: "brake", CreationTimestamp: metav1.NewTime(clk.Now())}}
	flights := newFlights(api, o.cluster, clk, patience)
	o.waits = func() bool { return flights.mayCome(t.Context(), o.pod) }
	return o
}

func (o *planning) name() string { return fmt.Sprintf("edge-%d", o.opened) }

// opens a machine and plans the pod onto it; the one before goes.
func (o *planning) opens() {
	o.cluster.DeleteNodeClaim(o.name())
	o.opened++
	o.plans(o.claim(o.name(), o.clock.Now()))
}

// claim is a machine that was asked for at a time.
func (o *planning) claim(name string, at time.Time) *karpv1.NodeClaim {
	o.Helper()
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(at)}}
	claim.Status.ProviderID = "fake:///" + name
	if err := o.api.Create(o.Context(), claim); err != nil {
		o.Fatal(err)
	}
	o.cluster.UpdateNodeClaim(claim)
	return claim
}

// plans the pod onto a machine.
func (o *planning) plans(claim *karpv1.NodeClaim) {
	planned := []*corev1.Pod{o.pod}
	o.cluster.MarkPodSchedulingDecisions(o.Context(), nil, map[string][]*corev1.Pod{"": planned}, map[string][]*corev1.Pod{claim.Name: planned})
}

// expectPatience has a machine that never joins be opened for the pod every 15 minutes of an hour, and expects it to wait for 20.
func (o *planning) expectPatience(t *testing.T) {
	t.Helper()
	for minute := range 60 {
		if minute%15 == 0 {
			o.opens()
		}
		if got, want := o.waits(), minute < 20; got != want {
			t.Fatalf("minute %d, machine %d: it waits for a node: %t, want %t", minute, o.opened, got, want)
		}
		o.clock.Step(time.Minute)
	}
}

// The provider gives machines that never join. Karpenter deletes each NodeClaim after 15 minutes, and its provisioner has made the next by then.
func TestMachinesThatNeverJoinAreNotWaitedForForEver(t *testing.T) {
	o := newPlanning(t, 20*time.Minute)
	o.expectPatience(t)
}

// A machine that the provisioner finds for a pod for which there was none is given its time, however long the pod has waited.
func TestAMachineThatIsFoundLateIsWaitedFor(t *testing.T) {
	o := newPlanning(t, 20*time.Minute)
	o.opens()
	o.clock.Step(10 * time.Minute)
	o.cluster.MarkPodSchedulingDecisions(t.Context(), map[*corev1.Pod]error{o.pod: errors.New("no machine has room")}, nil, nil)
	if o.waits() {
		t.Error("it waits for a node, and none will come")
	}
	o.clock.Step(time.Hour)
	o.opens()
	o.clock.Step(19 * time.Minute)
	if !o.waits() {
		t.Error("it waits for no node, and one is coming")
	}
	o.clock.Step(2 * time.Minute)
	if o.waits() {
		t.Error("it waits for a node that takes too long")
	}
}

// A pod for which a node that is there seemed to do, and for which one is opened in the end, waits for that as long as any: when it was first planned
// says nothing about it.
func TestANodeThatIsOpenedAfterALongWaitIsWaitedFor(t *testing.T) {
	o := newPlanning(t, 20*time.Minute)
	there := o.claim("there", o.clock.Now().Add(-24*time.Hour))
	there.StatusConditions().SetTrue(karpv1.ConditionTypeInitialized)
	if err := o.api.Update(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	for minute := range 60 {
		o.plans(there)
		if got, want := o.waits(), minute < 20; got != want {
			t.Fatalf("minute %d: it waits for the node that is there: %t, want %t", minute, got, want)
		}
		o.clock.Step(time.Minute)
	}
	o.expectPatience(t)
}

// Of a pod that was not asked about meanwhile the same is known, and one that was made under the name of another has its own time.
func TestHowLongANodeIsWaitedForIsThePodsOwn(t *testing.T) {
	o := newPlanning(t, 20*time.Minute)
	o.plans(o.claim("there", o.clock.Now()))
	o.clock.Step(time.Hour)
	o.opens()
	o.clock.Step(19 * time.Minute)
	if !o.waits() {
		t.Error("it waits for no node, and one is coming")
	}
	o.clock.Step(2 * time.Minute)
	if o.waits() {
		t.Error("it waits for a node that takes too long")
	}
	o.cluster.DeletePod(client.ObjectKeyFromObject(o.pod))
	o.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "car", Name: "brake", UID: "next", CreationTimestamp: metav1.NewTime(o.clock.Now())}}
	o.opens()
	if !o.waits() {
		t.Error("the next of its name waits for no node, and one is coming")
	}
}

// Between two machines, of which the first never joined, the next is waited for: not for longer than the provisioner needs, nor than for the first.
func TestBetweenTwoMachinesTheNextIsWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		gone, after time.Duration
		want        bool
	}{
		"seconds after the first has gone":               {15 * time.Minute, 5 * time.Second, true},
		"when the provisioner never comes back to it":    {15 * time.Minute, 2 * time.Minute, false},
		"when the patience for the first one is over":    {20*time.Minute - 3*time.Second, 5 * time.Second, false},
		"when the one that has gone was there, and full": {-15 * time.Minute, 5 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := newPlanning(t, 20*time.Minute)
			o.opened++
			claim := o.claim(o.name(), o.clock.Now())
			if c.gone < 0 {
				claim.StatusConditions().SetTrue(karpv1.ConditionTypeInitialized)
				if err := o.api.Update(t.Context(), claim); err != nil {
					t.Fatal(err)
				}
			}
			o.plans(claim)
			o.clock.Step(c.gone.Abs())
			if !o.waits() {
				t.Fatal("it waits for no node, and is planned onto one")
			}
			o.cluster.DeleteNodeClaim(o.name())
			o.clock.Step(c.after)
			if got := o.waits(); got != c.want {
				t.Errorf("it waits for the next node: %t, want %t", got, c.want)
			}
			o.pod = o.pod.DeepCopy()
			if o.pod.UID = "other"; o.waits() {
				t.Error("another of its name waits for a node, and none is coming")
			}
		})
	}
}
