package promises_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
	"github.com/mainspring-rt/mainspring/pkg/test/promises"
)

const capacity = 900_000

// slice publishes cores 1 and 2 of node n; core 2 keeps an escalation reserve of a tenth.
func slice() *resourcev1.ResourceSlice {
	device := func(name string, id, ppm, reserve int64) resourcev1.Device {
		return resourcev1.Device{
			Name: name,
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				mckubev1alpha1.AttributeCoreID:            {IntValue: ptr.To(id)},
				mckubev1alpha1.AttributeEscalationReserve: {IntValue: ptr.To(reserve)},
			},
			Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
				mckubev1alpha1.CapacityRTBandwidth: {Value: *resource.NewQuantity(ppm, resource.DecimalSI)},
			},
		}
	}
	return &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "n-cores"},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: mckubev1alpha1.DriverCPU, NodeName: ptr.To("n"), Pool: resourcev1.ResourcePool{Name: "n"},
			Devices: []resourcev1.Device{device("core-1", 1, capacity, 0), device("core-2", 2, capacity-100_000, 100_000)},
		},
	}
}

// server takes low to high percent of the cores.
func server(pod, criticality string, low, high int64, cores ...int32) mckubev1alpha1.RTServer {
	return mckubev1alpha1.RTServer{
		PodUID: types.UID(pod), Pod: pod, Container: "app", Criticality: criticality,
		PeriodUs: 100_000, BudgetLowUs: low * 1000, BudgetHighUs: high * 1000, Cores: cores,
	}
}

func limited(s mckubev1alpha1.RTServer) mckubev1alpha1.RTServer {
	s.Limited = true
	return s
}

func rtNode(name string, servers ...mckubev1alpha1.RTServer) *mckubev1alpha1.RTNode {
	return &mckubev1alpha1.RTNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: mckubev1alpha1.RTNodeSpec{Servers: servers}}
}

func pod(name, node string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "d", UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: node}}
	for _, change := range changes {
		change(p)
	}
	return p
}

func gone(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.Unix(1, 0)) }

func byEviction(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"}}
}

func preempting(victim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{mcoperatorv1.AnnotationPreempting: `{"node":"n","core":1,"victims":["` + victim + `"]}`}
	}
}

func mckube(pod string, criticality mcoperatorv1.Criticality) *mcoperatorv1.McKube {
	return &mcoperatorv1.McKube{
		ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: "d"},
		Spec:       mcoperatorv1.McKubeSpec{Podname: pod, Criticality: criticality},
	}
}

func claim(name, device string, ppm int64) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "d"},
		Status: resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
			Results: []resourcev1.DeviceRequestAllocationResult{{
				Pool: "n", Device: device,
				ConsumedCapacity: map[resourcev1.QualifiedName]resource.Quantity{
					mckubev1alpha1.CapacityRTBandwidth: *resource.NewQuantity(ppm, resource.DecimalSI),
				},
			}},
		}}},
	}
}

func applied(pod string, budget int64) *mckubev1alpha1.RTNode {
	n := rtNode("n", server("a", "High", 10, 30, 1))
	n.Status.Servers = []mckubev1alpha1.RTServerStatus{
		{PodUID: "a", Container: "app", BudgetUs: 50_000, PeriodUs: 100_000, Cores: []int32{1}},
		{PodUID: types.UID(pod), Container: "app", BudgetUs: budget, PeriodUs: 100_000, Cores: []int32{1}},
	}
	return n
}

// action is one at pods, of cause "p".
func action(name, kind, phase, node string, pods ...string) *mckubev1alpha1.RTAction {
	a := &mckubev1alpha1.RTAction{ObjectMeta: metav1.ObjectMeta{Name: name}}
	a.Spec = mckubev1alpha1.RTActionSpec{
		Kind: mckubev1alpha1.ActionKind(kind), Reason: "RTPressure", Cause: "p", Node: node,
		Beneficiary: mckubev1alpha1.ActionBeneficiary{Criticality: "Middle"},
	}
	for _, pod := range pods {
		a.Spec.Pods = append(a.Spec.Pods, mckubev1alpha1.ActionPod{Namespace: "d", Name: pod, UID: types.UID(pod)})
	}
	a.Status.Phase = mckubev1alpha1.ActionPhase(phase)
	return a
}

func rearranged(name, reason string) *mckubev1alpha1.RTAction {
	a := action(name, "Rearrange", "Succeeded", "n")
	a.Spec.Reason, a.Spec.Moves = reason, []mckubev1alpha1.ActionMove{{PodUID: "a", Container: "app", Core: 2}}
	return a
}

// placed is a pod of no namespace on node n, as servers of these tests have none.
func placed(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := pod(name, "n", changes...)
	p.Namespace = ""
	return p
}

func lastly(a *mckubev1alpha1.RTAction) *mckubev1alpha1.RTAction {
	a.Spec.Cause += "/node"
	return a
}

func crowd(kind string, n int, pods ...string) []client.Object {
	var all []client.Object
	for i := range n {
		all = append(all, action(fmt.Sprint("a-", i), kind, "Running", "n", pods...))
	}
	return all
}

func TestBroken(t *testing.T) {
	high, low, middle := mckube("a", "HIGH"), mckube("b", "Low"), mckube("c", "Middle")
	for name, test := range map[string]struct {
		objects []client.Object
		want    string // of the one broken promise; empty: none
	}{
		"full core": {[]client.Object{rtNode("n", server("a", "High", 20, 50, 1), server("b", "Low", 39, 90, 1))}, ""},
		"low budgets fit, high ones do not": {
			[]client.Object{rtNode("n", server("a", "High", 20, 50, 1), server("b", "Middle", 20, 45, 1))}, "core 1 of node n is promised 952000 ppm",
		},
		"the margin is charged": {[]client.Object{rtNode("n", server("a", "Low", 45, 45, 1), server("b", "Low", 45, 45, 1))}, "promised 902000 ppm"},
		"one step out of the reserve": {
			[]client.Object{rtNode("n", limited(server("a", "High", 30, 40, 2)), limited(server("b", "Middle", 40, 50, 2)))}, "",
		},
		"a step beyond the reserve": {[]client.Object{rtNode("n", limited(server("a", "High", 30, 45, 2)))}, "steps of 150000 ppm"},
		"on two cores":              {[]client.Object{rtNode("n", server("a", "Low", 1, 1, 1, 2))}, "not on one"},
		"on two nodes": {
			[]client.Object{rtNode("n", server("a", "Low", 1, 1, 1)), rtNode("m", server("a", "Low", 1, 1, 1))}, "node m and of node n",
		},
		"no such core":                {[]client.Object{rtNode("n", server("a", "Low", 1, 1, 7))}, "no core 7"},
		"pod elsewhere":               {[]client.Object{pod("a", "m"), rtNode("n", server("a", "Low", 1, 1, 1))}, `on node "m"`},
		"budgets that fit":            {[]client.Object{applied("b", 40_000)}, ""},
		"budgets that do not":         {[]client.Object{applied("b", 41_000)}, "in force on core 1"},
		"claims that fit":             {[]client.Object{claim("a", "core-1", 500_000), claim("b", "core-1", 400_000)}, ""},
		"claims that do not":          {[]client.Object{claim("a", "core-1", 500_000), claim("b", "core-1", 400_001)}, "add up to 900001"},
		"claims on two cores":         {[]client.Object{claim("a", "core-1", 500_000), claim("b", "core-2", 500_000)}, ""},
		"a lower victim":              {[]client.Object{high, low, pod("a", "", preempting("b")), pod("b", "n", gone, byEviction)}, ""},
		"an equal victim":             {[]client.Object{high, pod("a", "", preempting("a"))}, "of rank 3 is to give way"},
		"a higher victim":             {[]client.Object{middle, high, pod("c", "", preempting("a")), pod("a", "n")}, "pod a of rank 3 is to give way to c of rank 2"},
		"a victim that is cut":        {[]client.Object{high, low, pod("a", "", preempting("b")), pod("b", "n", gone)}, "without the Eviction API"},
		"as many at a node as may be": {crowd("Rearrange", 5), ""},
		"too many at a node":          {crowd("Rearrange", 6), "node n has more under way than 5"},
		"a node that is not alone":    {append(crowd("Rearrange", 1), action("b", "ReplaceNode", "Running", "n")), "not in the hands of b alone"},
		"a pod in two hands":          {crowd("Migrate", 2, "a"), "pod a is in the hands of a-0 and of a-1"},
		"a pod of one that waits":     {append(crowd("Migrate", 1, "a"), action("b", "Migrate", "Waiting", "n", "a")), ""},
		"moved twice":                 {[]client.Object{action("a", "Migrate", "Succeeded", "n", "a"), action("b", "Preempt", "Succeeded", "n", "a")}, "moved for p by a and by b"},
		"a container moved twice":     {[]client.Object{rearranged("a", "RTPressure"), rearranged("b", "RTPressure")}, "container a/app was moved"},
		"a pod whose container was": {
			[]client.Object{rearranged("a", "RTPressure"), action("b", "Migrate", "Succeeded", "n", "a")}, "pod a was moved for p by a and by b",
		},
		"a container of a pod that was": {
			[]client.Object{action("a", "Migrate", "Succeeded", "n", "a"), rearranged("b", "RTPressure")}, "container a/app was moved for p by a and by b",
		},
		"moved with its node, too": {
			[]client.Object{
				placed("a"), rtNode("n", server("a", "Low", 1, 1, 1)), rearranged("a", "RTPressure"), action("b", "ReplaceNode", "Running", "n"),
				rtNode("n"), action("b", "ReplaceNode", "Succeeded", "n"),
			}, "pod a was moved for p by a and by b",
		},
		"moved with its node as the last resort": {
			[]client.Object{
				placed("a"), rtNode("n", server("a", "Low", 1, 1, 1)), rearranged("a", "RTPressure"), lastly(action("b", "ReplaceNode", "Running", "n")),
				rtNode("n"), lastly(action("b", "ReplaceNode", "Succeeded", "n")),
			}, "",
		},
		"a last resort of another kind": {[]client.Object{lastly(action("b", "Migrate", "Waiting", "n", "a"))}, "which is for replacing the node"},
		"left where it is by a preemption": {
			[]client.Object{
				low, pod("b", "n"), action("a", "Preempt", "Succeeded", "n", "b"), action("b", "Migrate", "Succeeded", "n", "b"), pod("b", "n", gone, byEviction),
			}, "",
		},
		"gone before its node": {
			[]client.Object{
				placed("a", gone), rtNode("n", server("a", "Low", 1, 1, 1)), action("a", "Preempt", "Succeeded", "n", "a"),
				action("b", "ReplaceNode", "Running", "n"), action("b", "ReplaceNode", "Succeeded", "n"),
			}, "",
		},
		"a container moved back":   {[]client.Object{rearranged("a", "RTPressure"), rearranged("b", "Recovery")}, ""},
		"a lesser pod for another": {[]client.Object{low, pod("b", "n"), action("a", "Preempt", "Running", "n", "b")}, ""},
		"an equal pod for another": {[]client.Object{middle, pod("c", "n"), action("a", "Preempt", "Running", "n", "c")}, "evicts pod c of rank 2 for rank 2"},
	} {
		t.Run(name, func(t *testing.T) {
			versions := []history.Version{{Revision: 1, Type: watch.Added, Object: slice()}}
			for i, o := range test.objects {
				versions = append(versions, history.Version{Revision: uint64(i + 2), Type: watch.Added, Object: o})
			}
			broken := promises.Broken(history.Of(versions...))
			if test.want == "" && len(broken) != 0 {
				t.Errorf("broken: %q", broken)
			}
			if test.want != "" && (len(broken) == 0 || !strings.Contains(strings.Join(broken, "\n"), test.want)) {
				t.Errorf("broken: %q, want %q", broken, test.want)
			}
		})
	}
}
