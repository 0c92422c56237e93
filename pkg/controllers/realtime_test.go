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
	// missed is when a NodePool was last left out.
	missed time.Time
}

func newPlanning(t *testing.T, patience time.Duration) *planning {
	t.Helper()
	clk := clocktesting.NewFakeClock(time.Now())
	api := crfake.NewFakeClient()
	o := &planning{T: t, clock: clk, api: api, cluster: state.NewCluster(clk, api, fake.NewCloudProvider())}
	o.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "car", Name: "brake", CreationTimestamp: metav1.NewTime(clk.Now())}}
	o.leads(patience)
	return o
}

// leads has a process begin to ask.
func (o *planning) leads(patience time.Duration) {
	flights := newFlights(o.api, o.cluster, func() time.Time { return o.missed }, o.clock, patience, 10*time.Second)
	o.waits = func() bool { return flights.mayCome(o.Context(), o.pod) }
}

// takesOver has another process ask: of Karpenter's state it has what the API server has.
func (o *planning) takesOver(patience time.Duration) {
	o.Helper()
	o.cluster = state.NewCluster(o.clock, o.api, fake.NewCloudProvider())
	claims := &karpv1.NodeClaimList{}
	if err := o.api.List(o.Context(), claims); err != nil {
		o.Fatal(err)
	}
	for i := range claims.Items {
		o.cluster.UpdateNodeClaim(&claims.Items[i])
	}
	o.leads(patience)
}

// expectWaits asks each second, as long as the pod waits, and expects it to wait for so long.
func (o *planning) expectWaits(want time.Duration) {
	o.Helper()
	began := o.clock.Now()
	for o.waits() && o.clock.Since(began) < time.Hour {
		o.clock.Step(time.Second)
	}
	if got := o.clock.Since(began); got != want {
		o.Errorf("it waits for a node for %s, want %s", got, want)
	}
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
	claim.Spec.NodeClassRef = &karpv1.NodeClassReference{}
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

// A new leader knows nothing of what the last one's provisioner planned. The node that is on its way is waited for all the same, for as long as the last leader would have.
func TestANewLeaderWaitsForTheNodeThatIsOnItsWay(t *testing.T) {
	o := newPlanning(t, 20*time.Minute)
	o.clock.Step(20 * time.Second)
	o.opens()
	claim := &karpv1.NodeClaim{}
	if err := o.api.Get(t.Context(), client.ObjectKey{Name: o.name()}, claim); err != nil {
		t.Fatal(err)
	}
	o.clock.Step(5 * time.Minute)
	for range 3 {
		o.takesOver(20 * time.Minute)
		if !o.waits() {
			t.Fatal("the provisioner has not decided on the pod since the restart, and no node is waited for")
		}
		o.clock.Step(12 * time.Second) // a batch, and planning
		o.plans(claim)
		if !o.waits() {
			t.Fatal("it waits for no node, and one is coming")
		}
	}
	o.expectWaits(15*time.Minute - 3*12*time.Second)
}

// Nobody waits for ever for a provisioner that does not decide. While it may not, as a machine has no provider ID yet, it is given more time.
func TestAProvisionerThatDoesNotDecideIsNotWaitedForForEver(t *testing.T) {
	for name, c := range map[string]struct {
		unsynced, want time.Duration
	}{
		"at all":                         {0, 30 * time.Second},
		"once it may":                    {time.Minute, 90*time.Second - time.Second},
		"as it may not for all the time": {2 * time.Hour, 150*time.Second - time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			o := newPlanning(t, 20*time.Minute)
			o.clock.Step(time.Hour)
			claim := o.claim("stranger", o.clock.Now())
			began := o.clock.Now()
			claim.Status.ProviderID = ""
			if c.unsynced > 0 {
				o.cluster.UpdateNodeClaim(claim)
			}
			ask := o.waits
			o.waits = func() bool {
				if claim.Status.ProviderID == "" && o.clock.Since(began) >= c.unsynced {
					claim.Status.ProviderID = "fake:///stranger"
					o.cluster.UpdateNodeClaim(claim)
				}
				return ask()
			}
			o.expectWaits(c.want)
			o.pod = o.pod.DeepCopy()
			if o.pod.UID = "next"; !o.waits() {
				t.Error("the next of its name is not waited with")
			}
			if o.pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet"}}; o.waits() {
				t.Error("a DaemonSet's pod is waited with, and the provisioner never decides on any")
			}
			o.pod.OwnerReferences = nil
			if o.cluster.MarkPodSchedulingDecisions(t.Context(), map[*corev1.Pod]error{o.pod: errors.New("no machine has room")}, nil, nil); o.waits() {
				t.Error("it waits for a node, and none will come")
			}
		})
	}
}

// Where the overlays of a NodePool are not evaluated yet, as at the start of a process, the provisioner decides without it. Such a decision says nothing about
// whether a node comes: the next one is waited for, not for ever.
func TestADecisionWithoutANodePoolIsNone(t *testing.T) {
	for name, c := range map[string]struct{ missed, want time.Duration }{
		"just before it": {100 * time.Millisecond, 30 * time.Second},
		"long before it": {time.Minute, 0},
		"never":          {0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			o := newPlanning(t, 20*time.Minute)
			if c.missed > 0 {
				o.missed = o.clock.Now().Add(-c.missed)
			}
			o.cluster.MarkPodSchedulingDecisions(t.Context(), map[*corev1.Pod]error{o.pod: errors.New("nodepool requirements filtered out all available instance types")}, nil, nil)
			o.expectWaits(c.want)
		})
	}
}
