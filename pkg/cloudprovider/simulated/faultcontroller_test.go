package simulated_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/simulated"
)

// upWorld has registered NodeClaims claim-0, claim-1, ..., a second apart.
func upWorld(t failer, n int, requirements ...karpv1.NodeSelectorRequirementWithMinValues) *world {
	t.Helper()
	w := newWorld(t, interceptor.Funcs{}, nodePool("pool"))
	for i := range n {
		name := fmt.Sprintf("claim-%d", i)
		w.create(t, nodeClaim(name, "pool", requirements...))
		w.up(t, name)
	}
	return w
}

func (w *world) node(t failer, claim string) *corev1.Node {
	t.Helper()
	node := &corev1.Node{}
	name := simulated.NodeName(claim, types.UID("uid-"+claim))
	if err := w.client.Get(context.Background(), types.NamespacedName{Name: name}, node); err != nil {
		t.Fatalf("getting the Node of %s: %v", claim, err)
	}
	return node
}

func condition(node *corev1.Node, conditionType corev1.NodeConditionType) corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == conditionType {
			return c
		}
	}
	return corev1.NodeCondition{}
}

func active(f *v1alpha1.SimulatedFault) string {
	c := apimeta.FindStatusCondition(f.Status.Conditions, v1alpha1.ConditionActive)
	if c == nil {
		return "none"
	}
	return string(c.Status) + " " + c.Reason
}

func TestSpotInterruption(t *testing.T) {
	w := upWorld(t, 2)
	w.create(t, fault("spot", v1alpha1.SimulatedFaultSpec{Type: v1alpha1.FaultSpotInterruption, Notice: &metav1.Duration{Duration: time.Minute}}))
	result := w.reconcile(t, w.provider.Faults(), "spot")
	if result.RequeueAfter != time.Minute {
		t.Errorf("result %+v, want again at the end of the notice", result)
	}
	first, second := w.claim(t, "claim-0"), w.claim(t, "claim-1")
	if first.DeletionTimestamp.IsZero() || !second.DeletionTimestamp.IsZero() {
		t.Fatal("not exactly the oldest spot machine is drained")
	}
	want := w.clock.Now().Add(time.Minute).Format(time.RFC3339)
	if got := first.Annotations[v1alpha1.AnnotationTerminateAt]; got != want {
		t.Errorf("end announced for %q, want %q", got, want)
	}
	if got := active(w.fault(t, "spot")); got != "False Exhausted" {
		t.Errorf("fault is %s", got)
	}
	if w.recorder.Calls("SpotInterruption") != 1 {
		t.Error("no Event")
	}
	id := first.Status.ProviderID
	if _, err := w.provider.Get(context.Background(), id); err != nil {
		t.Errorf("within the notice the machine is there: %v", err)
	}

	w.clock.Step(time.Minute)
	w.restart(t)
	w.reconcile(t, w.provider.Faults(), "spot")
	if _, err := w.provider.Get(context.Background(), id); !karpcloud.IsNodeClaimNotFoundError(err) {
		t.Errorf("after the notice: %v, want not found", err)
	}
	machines, err := w.provider.List(context.Background())
	if err != nil || len(machines) != 1 || machines[0].Status.ProviderID != second.Status.ProviderID {
		t.Errorf("List: %v, %v", machines, err)
	}
	node := w.node(t, "claim-0")
	if c := condition(node, corev1.NodeReady); c.Status != corev1.ConditionFalse {
		t.Errorf("Ready is %+v", c)
	}
	if got := *w.lease(t, node.Name).Spec.HolderIdentity; got == "kwok" {
		t.Error("the kubelet runs on")
	}
	if w.recorder.Calls("InstanceTerminated") != 1 {
		t.Error("no Event for the end")
	}
	if w.reconcile(t, w.provider.Faults(), "spot"); len(w.fault(t, "spot").Status.Affected) != 1 {
		t.Error("a fault that counts to one struck again")
	}
}

func TestSpotInterruptionSparesOnDemand(t *testing.T) {
	w := upWorld(t, 1, requires(karpv1.CapacityTypeLabelKey, "on-demand"))
	w.create(t, fault("spot", v1alpha1.SimulatedFaultSpec{Type: v1alpha1.FaultSpotInterruption}))
	w.reconcile(t, w.provider.Faults(), "spot")
	if !w.claim(t, "claim-0").DeletionTimestamp.IsZero() {
		t.Error("an on-demand machine was interrupted")
	}
	if got := active(w.fault(t, "spot")); got != "True Striking" {
		t.Errorf("fault is %s", got)
	}
}

func TestNodeFailureStopsTheKubelet(t *testing.T) {
	w := upWorld(t, 2)
	renewed := w.lease(t, w.node(t, "claim-1").Name).Spec.RenewTime
	w.create(t, fault("dead", v1alpha1.SimulatedFaultSpec{
		Type: v1alpha1.FaultNodeFailure, Selector: v1alpha1.FaultSelector{NodeClaims: []string{"claim-1"}}, Count: ptr.To[int32](5),
	}))
	w.reconcile(t, w.provider.Faults(), "dead")
	node := w.node(t, "claim-1")
	lease := w.lease(t, node.Name)
	if *lease.Spec.HolderIdentity == "kwok" || *lease.Spec.LeaseDurationSeconds < 1_000_000 || !lease.Spec.RenewTime.Equal(renewed) {
		t.Errorf("lease %+v", lease.Spec)
	}
	if node.Annotations[v1alpha1.AnnotationFailedBy] != "dead" {
		t.Errorf("annotations %v", node.Annotations)
	}
	if *w.lease(t, w.node(t, "claim-0").Name).Spec.HolderIdentity != "kwok" {
		t.Error("another Node was struck")
	}
	if err := w.client.Delete(context.Background(), w.fault(t, "dead")); err != nil {
		t.Fatal(err)
	}
	w.reconcile(t, w.provider.Faults(), "dead")
	if holder := w.lease(t, node.Name).Spec.HolderIdentity; holder != nil {
		t.Errorf("after the fault the lease is held by %q, want nobody", *holder)
	}
	if _, marked := w.node(t, "claim-1").Annotations[v1alpha1.AnnotationFailedBy]; marked {
		t.Error("the Node is still marked")
	}
}

// kwok may not have begun to play the kubelet: the failure waits for it.
func TestNodeFailureWaitsForTheKubelet(t *testing.T) {
	w := upWorld(t, 1)
	name := w.node(t, "claim-0").Name
	if err := w.client.Delete(context.Background(), w.lease(t, name)); err != nil {
		t.Fatal(err)
	}
	w.create(t, fault("dead", v1alpha1.SimulatedFaultSpec{Type: v1alpha1.FaultNodeFailure}))
	request := reconcile.Request{NamespacedName: types.NamespacedName{Name: "dead"}}
	if _, err := w.provider.Faults().Reconcile(context.Background(), request); err == nil {
		t.Error("a kubelet without lease was stopped")
	}
	if w.fault(t, "dead").Status.Affected[0].Applied {
		t.Error("the failure counts as applied")
	}
	w.createLease(t, name)
	w.reconcile(t, w.provider.Faults(), "dead")
	if !w.fault(t, "dead").Status.Affected[0].Applied || *w.lease(t, name).Spec.HolderIdentity == "kwok" {
		t.Error("the kubelet runs on")
	}
}

func TestNodeFailureCondition(t *testing.T) {
	w := upWorld(t, 1)
	w.create(t, fault("sick", v1alpha1.SimulatedFaultSpec{
		Type: v1alpha1.FaultNodeFailure, Condition: "KWOKRebootRequired", Duration: &metav1.Duration{Duration: time.Hour},
	}))
	w.clock.Step(time.Second)
	result := w.reconcile(t, w.provider.Faults(), "sick")
	c := condition(w.node(t, "claim-0"), "KWOKRebootRequired")
	if c.Status != corev1.ConditionTrue || !c.LastTransitionTime.Time.Equal(w.clock.Now()) {
		t.Errorf("condition %+v", c)
	}
	if result.RequeueAfter != time.Hour-time.Second {
		t.Errorf("result %+v, want again at the expiry", result)
	}
	claim := w.claim(t, "claim-0")
	if err := w.provider.Reboot(context.Background(), claim, "op-1"); err != nil {
		t.Fatal(err)
	}
	node := w.node(t, "claim-0")
	if condition(node, "KWOKRebootRequired").Type != "" || node.Status.NodeInfo.BootID != "kwok-op-1" {
		t.Errorf("after the reboot: conditions %v, boot ID %q", node.Status.Conditions, node.Status.NodeInfo.BootID)
	}
	if _, marked := node.Annotations[v1alpha1.AnnotationFailedBy]; marked {
		t.Error("after the reboot the Node is still marked")
	}
	w.reconcile(t, w.provider.Faults(), "sick")
	if condition(w.node(t, "claim-0"), "KWOKRebootRequired").Type != "" {
		t.Error("the Node was broken twice")
	}
}

// What is mended when a fault ends is what that fault did, so no two break the same Node.
func TestNodeFailurePassesOverWhatAnotherBroke(t *testing.T) {
	w := upWorld(t, 2)
	w.create(t, fault("first", v1alpha1.SimulatedFaultSpec{Type: v1alpha1.FaultNodeFailure, Condition: "KWOKUnhealthy"}))
	w.reconcile(t, w.provider.Faults(), "first")
	w.create(t, fault("second", v1alpha1.SimulatedFaultSpec{Type: v1alpha1.FaultNodeFailure, Count: ptr.To[int32](2)}))
	w.reconcile(t, w.provider.Faults(), "second")
	affected := w.fault(t, "second").Status.Affected
	if len(affected) != 1 || affected[0].Name != "claim-1" {
		t.Errorf("the second fault struck %v, want only claim-1", affected)
	}
	if by := w.node(t, "claim-0").Annotations[v1alpha1.AnnotationFailedBy]; by != "first" {
		t.Errorf("claim-0 is marked as broken by %q", by)
	}
}

func TestNodeFailureExpires(t *testing.T) {
	w := upWorld(t, 1)
	w.create(t, fault("sick", v1alpha1.SimulatedFaultSpec{
		Type: v1alpha1.FaultNodeFailure, Condition: "KWOKUnhealthy", Duration: &metav1.Duration{Duration: time.Minute},
	}))
	w.reconcile(t, w.provider.Faults(), "sick")
	w.clock.Step(time.Minute)
	w.restart(t)
	w.reconcile(t, w.provider.Faults(), "sick")
	if condition(w.node(t, "claim-0"), "KWOKUnhealthy").Type != "" {
		t.Error("the condition outlasts the fault")
	}
	if got := active(w.fault(t, "sick")); got != "False Expired" {
		t.Errorf("fault is %s", got)
	}
}

func TestDrift(t *testing.T) {
	w := upWorld(t, 1)
	claim := w.claim(t, "claim-0")
	if reason, err := w.provider.IsDrifted(context.Background(), claim); reason != "" || err != nil {
		t.Errorf("drifted by %q, %v", reason, err)
	}
	class := nodeClass()
	if err := w.client.Get(context.Background(), client.ObjectKeyFromObject(class), class); err != nil {
		t.Fatal(err)
	}
	class.Annotations = map[string]string{v1alpha1.AnnotationImage: "v2"}
	if err := w.client.Update(context.Background(), class); err != nil {
		t.Fatal(err)
	}
	if reason, err := w.provider.IsDrifted(context.Background(), claim); reason != simulated.ImageDrifted || err != nil {
		t.Errorf("drifted by %q, %v", reason, err)
	}
	w.create(t, nodeClaim("new", "pool"))
	w.up(t, "new")
	if reason, err := w.provider.IsDrifted(context.Background(), w.claim(t, "new")); reason != "" || err != nil {
		t.Errorf("launched with the new image: drifted by %q, %v", reason, err)
	}
	if err := w.client.Delete(context.Background(), class); err != nil {
		t.Fatal(err)
	}
	if reason, err := w.provider.IsDrifted(context.Background(), claim); reason != "" || err != nil {
		t.Errorf("without node class: drifted by %q, %v", reason, err)
	}
}

func TestDelete(t *testing.T) {
	w := upWorld(t, 1)
	claim := w.claim(t, "claim-0")
	for range 2 {
		if err := w.provider.Delete(context.Background(), claim); !karpcloud.IsNodeClaimNotFoundError(err) {
			t.Errorf("Delete: %v, want not found", err)
		}
	}
	err := w.client.Get(context.Background(), types.NamespacedName{Name: claim.Status.NodeName}, &corev1.Node{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("getting the Node: %v, want not found", err)
	}
	if _, err := w.provider.Get(context.Background(), claim.Status.ProviderID); !karpcloud.IsNodeClaimNotFoundError(err) {
		t.Errorf("Get: %v, want not found", err)
	}
	if _, err := w.provider.Get(context.Background(), "aws://i-1"); !karpcloud.IsNodeClaimNotFoundError(err) {
		t.Errorf("Get of another cloud's machine: %v, want not found", err)
	}
}
