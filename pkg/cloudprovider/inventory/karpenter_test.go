package inventory_test

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/nodeclass"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/inventory"
)

func (w *world) machine(name string) *inventory.Machine {
	w.t.Helper()
	m := &inventory.Machine{}
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Name: name}, m); err != nil {
		w.t.Fatal(err)
	}
	return m
}

func machine(name string, changes ...func(*inventory.Machine)) *inventory.Machine {
	m := &inventory.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.InventoryMachineSpec{
			HardwareClass: "edge", Architecture: "amd64", Zone: "hall-1",
			Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")},
			Power:    v1alpha1.MachinePower{Exec: &v1alpha1.ExecPower{Command: "switch"}},
		},
	}
	for _, change := range changes {
		change(m)
	}
	return m
}

func nodePool(name string, requirements ...karpv1.NodeSelectorRequirementWithMinValues) *karpv1.NodePool {
	return &karpv1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: karpv1.NodePoolSpec{Template: karpv1.NodeClaimTemplate{Spec: karpv1.NodeClaimTemplateSpec{
			NodeClassRef: nodeClassRef(), Requirements: requirements,
		}}},
	}
}

func nodeClassRef() *karpv1.NodeClassReference {
	return &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: nodeclass.Kind, Name: "default"}
}

func requires(key string, values ...string) karpv1.NodeSelectorRequirementWithMinValues {
	return karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

// nodeClaim is one that Karpenter has made, with its finalizer, and has not launched.
func nodeClaim(name string, requirements ...karpv1.NodeSelectorRequirementWithMinValues) *karpv1.NodeClaim {
	return &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("uid-" + name), Finalizers: []string{karpv1.TerminationFinalizer},
			Labels: map[string]string{karpv1.NodePoolLabelKey: "edge"},
		},
		Spec: karpv1.NodeClaimSpec{NodeClassRef: nodeClassRef(), Requirements: requirements},
	}
}

// launch has Create called as Karpenter does, and records what it answers.
func (w *world) launch(claim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	w.t.Helper()
	if w.gone(claim) {
		if err := w.client.Create(w.t.Context(), claim); err != nil {
			w.t.Fatal(err)
		}
	}
	created, err := w.provider.Create(w.t.Context(), claim.DeepCopy())
	if err != nil {
		return nil, err
	}
	claim.Labels, claim.Status = created.Labels, created.Status
	status := claim.Status
	if err := w.client.Update(w.t.Context(), claim); err != nil {
		w.t.Fatal(err)
	}
	claim.Status = status
	if err := w.client.Status().Update(w.t.Context(), claim); err != nil {
		w.t.Fatal(err)
	}
	return created, nil
}

func (w *world) mustLaunch(claim *karpv1.NodeClaim) *karpv1.NodeClaim {
	w.t.Helper()
	created, err := w.launch(claim)
	if err != nil {
		w.t.Fatal(err)
	}
	return created
}

// join has the machine's kubelet join.
func (w *world) join(name string, changes ...func(*corev1.Node)) *corev1.Node {
	w.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name)}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, change := range changes {
		change(node)
	}
	if err := w.client.Create(w.t.Context(), node); err != nil {
		w.t.Fatal(err)
	}
	return node
}

// end has Karpenter end a NodeClaim: the Node is drained and deleted, Delete is called until the machine is gone.
func (w *world) end(claim *karpv1.NodeClaim, names ...string) {
	w.t.Helper()
	if err := w.client.Delete(w.t.Context(), claim); client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	for range 100 {
		err := w.provider.Delete(w.t.Context(), claim)
		if isGone(err) {
			w.forget(claim)
			w.settle(names...)
			return
		}
		if err != nil {
			w.t.Fatal(err)
		}
		w.pass(5*time.Second, names...)
	}
	w.t.Fatalf("the machine of NodeClaim %s does not end", claim.Name)
}

// forget takes Karpenter's finalizer off, and the Node away.
func (w *world) forget(claim *karpv1.NodeClaim) {
	w.t.Helper()
	current := &karpv1.NodeClaim{}
	if err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(claim), current); client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	current.Finalizers = nil
	if err := w.client.Update(w.t.Context(), current); client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: claim.Labels[v1alpha1.LabelMachine]}}
	if err := w.client.Delete(w.t.Context(), node); client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
}
