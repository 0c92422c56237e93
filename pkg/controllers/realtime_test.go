package controllers

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	crfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
)

// planning is a provisioner that opens machines for a pod, as Karpenter's cluster state hears of them.
type planning struct {
	*testing.T
	clock   *clocktesting.FakeClock
	cluster *state.Cluster
	pod     *corev1.Pod
	waits   func() bool
	opened  int
}

func newPlanning(t *testing.T, patience time.Duration) *planning {
	t.Helper()
	clk := clocktesting.NewFakeClock(time.Now())
	o := &planning{T: t, clock: clk, cluster: state.NewCluster(clk, crfake.NewFakeClient(), fake.NewCloudProvider())}
	o.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "car", Name: "brake", CreationTimestamp: metav1.NewTime(clk.Now())}}
	flies := inFlight(o.cluster, clk, patience)
	o.waits = func() bool { return flies(t.Context(), o.pod) }
	return o
}

func (o *planning) name() string { return fmt.Sprintf("edge-%d", o.opened) }

// opens a machine and plans the pod onto it; the one before goes.
func (o *planning) opens() {
	o.cluster.DeleteNodeClaim(o.name())
	o.opened++
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: o.name()}}
	claim.Status.ProviderID = "fake:///" + claim.Name
	o.cluster.UpdateNodeClaim(claim)
	planned := []*corev1.Pod{o.pod}
	o.cluster.MarkPodSchedulingDecisions(o.Context(), nil, map[string][]*corev1.Pod{"": planned}, map[string][]*corev1.Pod{claim.Name: planned})
}

// The provider gives machines that never join. Karpenter deletes each NodeClaim after 15 minutes, and its provisioner has made the next by then.
func TestMachinesThatNeverJoinAreNotWaitedForForEver(t *testing.T) {
	o := newPlanning(t, 20*time.Minute)
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
