// Package statetest builds the API objects that the state is made from, for tests and benchmarks.
package statetest

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// Birth is when objects of the tests were made.
var Birth = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func meta(namespace, name string, uid types.UID) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid, CreationTimestamp: metav1.NewTime(Birth)}
}

// Node is ready and takes pods.
func Node(name string, uid types.UID) *corev1.Node {
	n := &corev1.Node{ObjectMeta: meta("", name, uid)}
	n.Labels = map[string]string{corev1.LabelHostname: name}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

// Slice is the slice by which a node offers its cores.
func Slice(n *corev1.Node, cores ...rt.Core) *resourcev1.ResourceSlice {
	return SliceOf(n, "simulated", cores...)
}

// SliceOf is the slice of a node whose budgets the backend enforces.
func SliceOf(n *corev1.Node, backend string, cores ...rt.Core) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: meta("", n.Name+"-cores", "slice-"+n.UID)}
	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}}
	s.Spec = resourcev1.ResourceSliceSpec{Driver: v1alpha1.DriverCPU, NodeName: &n.Name, Pool: resourcev1.ResourcePool{Name: n.Name, Generation: 1, ResourceSliceCount: 1}}
	for _, c := range cores {
		s.Spec.Devices = append(s.Spec.Devices, rtdra.Device(c, backend))
	}
	return s
}

// Cores are so many cores of 90 %.
func Cores(n int) []rt.Core {
	out := make([]rt.Core, n)
	for i := range out {
		out[i] = rt.Core{ID: i, Sibling: rt.NoSibling, Capacity: rt.MaxCapacity, Granularity: 100}
	}
	return out
}

// Pod is a pending pod with the label of real-time work.
func Pod(namespace, name string, uid types.UID, containers ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: meta(namespace, name, uid)}
	p.Labels = map[string]string{mcv1.LabelRT: "x"}
	p.Status.Phase = corev1.PodPending
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c})
	}
	return p
}

// On has the pod run on a node.
func On(p *corev1.Pod, node string) *corev1.Pod {
	p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
	return p
}

// WithClaim has the webhook's claim on the pod.
func WithClaim(p *corev1.Pod, container, object string) *corev1.Pod {
	name := rtdra.ClaimName(container)
	template := "template"
	p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: name, ResourceClaimTemplateName: &template})
	p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: name, ResourceClaimName: &object})
	for i := range p.Spec.Containers {
		if p.Spec.Containers[i].Name == container {
			p.Spec.Containers[i].Resources.Claims = []corev1.ResourceClaim{{Name: name}}
		}
	}
	return p
}

// McKube gives the container of a pod low of high of 100 ms.
func McKube(namespace, name, pod string, criticality mcv1.Criticality, lowMs, highMs int64) *mcv1.McKube {
	return &mcv1.McKube{
		ObjectMeta: meta(namespace, name, types.UID("mck-"+namespace+"-"+name)),
		Spec: mcv1.McKubeSpec{
			Podname: pod, Criticality: criticality,
			RTSettings: &mcv1.RTSettings{Period: 100_000, RuntimeLow: lowMs * 1000, RuntimeHi: highMs * 1000},
		},
	}
}

// Selecting has a McKube govern pods by their label app instead of by their name, which those that a controller makes again do not have.
func Selecting(m *mcv1.McKube, app string) *mcv1.McKube {
	m.Spec.Podname, m.Spec.Selector = "", &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	return m
}

// Claim is the container's claim, given a core when node is not empty.
func Claim(p *corev1.Pod, name, container, node string, core int, ppm rt.PPM) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: meta(p.Namespace, name, types.UID("claim-"+string(p.UID)+"-"+container))}
	c.Annotations = map[string]string{resourcev1.PodResourceClaimAnnotation: rtdra.ClaimName(container)}
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID}}
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: v1alpha1.RequestCore, Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: v1alpha1.DeviceClassRTCore}}}
	if node == "" {
		return c
	}
	c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{
		Request: v1alpha1.RequestCore, Driver: v1alpha1.DriverCPU, Pool: node, Device: rtdra.DeviceName(core),
		ConsumedCapacity: map[resourcev1.QualifiedName]resource.Quantity{v1alpha1.CapacityRTBandwidth: *resource.NewQuantity(int64(ppm), resource.DecimalSI)},
	}}}}
	c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: p.Name, UID: p.UID}}
	return c
}

// RTNode is that of the Node, with servers that should run.
func RTNode(n *corev1.Node, servers ...v1alpha1.RTServer) *v1alpha1.RTNode {
	r := &v1alpha1.RTNode{ObjectMeta: meta("", n.Name, "rtn-"+n.UID)}
	r.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}}
	r.Spec.Servers = servers
	return r
}

// RTServer is the entry of a Low container of 10 % on a core.
func RTServer(p *corev1.Pod, container string, core int32) v1alpha1.RTServer {
	return v1alpha1.RTServer{
		PodUID: p.UID, Namespace: p.Namespace, Pod: p.Name, Container: container, Criticality: "Low",
		PeriodUs: 100_000, DeadlineUs: 100_000, BudgetLowUs: 10_000, BudgetHighUs: 10_000, Cores: []int32{core},
	}
}

// Build is the snapshot of a complete store.
func Build(objects ...runtime.Object) *state.Snapshot {
	s, err := state.Build(state.Options{}, objects...)
	if err != nil {
		panic(err)
	}
	return s.Snapshot()
}

// Crowd is a cluster of so many nodes of 4 cores, with a Low container of 50 % on the first core of each.
func Crowd(nodes int) []runtime.Object {
	var out []runtime.Object
	for i := range nodes {
		n := Node(fmt.Sprintf("node-%02d", i), types.UID(fmt.Sprintf("node-%02d", i)))
		name := fmt.Sprintf("pod-%02d", i)
		p := On(WithClaim(Pod("default", name, types.UID(name), "app"), "app", name+"-claim"), n.Name)
		out = append(out, n, Slice(n, Cores(4)...), p, McKube("default", name, name, "Low", 50, 50), Claim(p, name+"-claim", "app", n.Name, 0, 501_000))
	}
	return out
}
