package main

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

const (
	namespaces = 20
	// Every other group of containers is a Deployment's, governed by one selector; the rest are pods
	// governed by name.
	groupSize = 8
	// crowdedCores of each node take three containers of four: some cores are nearly full.
	crowdedCores = 8
	// reservedCores of each node keep an escalation reserve.
	reservedCores = 8
	// escalationReserve is that reserve.
	escalationReserve = 200_000
)

// periods are those of automotive tasks (WATERS 2015), in microseconds.
var periods = []int64{5_000, 10_000, 20_000, 50_000, 100_000, 200_000}

// world is a cluster as its API objects.
type world struct {
	nodes     []*corev1.Node
	slices    []*resourcev1.ResourceSlice
	rtNodes   []*v1alpha1.RTNode
	pods      []*corev1.Pod
	mckubes   []*mcv1.McKube
	templates []*resourcev1.ResourceClaimTemplate
	claims    []*resourcev1.ResourceClaim
	used      [][]rt.PPM // by node and core
}

// newWorld draws a cluster; the same seed gives the same one.
func newWorld(s size, seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, uint64(s.nodes)))
	w := &world{}
	for i := range s.nodes {
		w.addNode(i, s.cores)
	}
	for len(w.pods) < s.containers {
		count := min(1+(groupSize-1)*(len(w.mckubes)%2), s.containers-len(w.pods))
		w.addGroup(r, count)
	}
	for _, n := range w.rtNodes { // what is decoded has no spare room either
		n.Spec.Servers, n.Status.Servers = exact(n.Spec.Servers), exact(n.Status.Servers)
	}
	return w
}

func exact[T any](list []T) []T { return append(make([]T, 0, len(list)), list...) }

func (w *world) objects() []runtime.Object {
	var out []runtime.Object
	out = appendAll(out, w.nodes)
	out = appendAll(out, w.slices)
	out = appendAll(out, w.rtNodes)
	out = appendAll(out, w.mckubes)
	out = appendAll(out, w.templates)
	out = appendAll(out, w.claims)
	return appendAll(out, w.pods)
}

func appendAll[T runtime.Object](out []runtime.Object, list []T) []runtime.Object {
	for _, o := range list {
		out = append(out, o)
	}
	return out
}

func coreOf(id int) rt.Core {
	c := rt.Core{ID: id, NUMA: id / 32, Sibling: rt.NoSibling, Capacity: rt.MaxCapacity, Granularity: state.DefaultGranularity}
	if id < reservedCores {
		c.Capacity, c.EscalationReserve = rt.MaxCapacity-escalationReserve, escalationReserve
	}
	return c
}

func (w *world) addNode(i, cores int) {
	name := fmt.Sprintf("edge-%04d", i)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name), Labels: map[string]string{
		corev1.LabelHostname: name, corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%3), corev1.LabelInstanceTypeStable: "edge-64x",
	}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "ready"}}
	owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: n.UID}}
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name + "-cores-0", UID: types.UID("slice-" + name), OwnerReferences: owner}}
	s.Spec = resourcev1.ResourceSliceSpec{Driver: v1alpha1.DriverCPU, NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1}}
	rn := &v1alpha1.RTNode{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("rtn-" + name), OwnerReferences: owner}}
	rn.Status = v1alpha1.RTNodeStatus{Backend: "simulated", BudgetGranularityUs: state.DefaultGranularity, AgentVersion: "bench",
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionAgentAlive, Status: metav1.ConditionTrue, Reason: "Heard", LastTransitionTime: metav1.Now()}}}
	for id := range cores {
		core := coreOf(id)
		s.Spec.Devices = append(s.Spec.Devices, rtdra.Device(core, "simulated"))
		rn.Status.Cores = append(rn.Status.Cores, v1alpha1.RTCoreStatus{ID: int32(id), NUMA: int32(core.NUMA), Sibling: rt.NoSibling, CapacityPpm: int64(core.Capacity)})
	}
	w.nodes, w.slices, w.rtNodes = append(w.nodes, n), append(w.slices, s), append(w.rtNodes, rn)
	w.used = append(w.used, make([]rt.PPM, cores))
}

// drawSettings is the budget of a container: 3 to 20 % of a core, raised by up to a half.
func drawSettings(r *rand.Rand) (*mcv1.RTSettings, mcv1.Criticality) {
	period := periods[r.IntN(len(periods))]
	low := max(200, period*(30+r.Int64N(170))/1000)
	high := low + low*r.Int64N(50)/100
	criticality := []mcv1.Criticality{"High", "Middle", "Middle", "Low", "Low"}[r.IntN(5)]
	return &mcv1.RTSettings{Period: period, RuntimeLow: low, RuntimeHi: high}, criticality
}

// addGroup adds a McKube and its pods, each on a core that passes the test.
func (w *world) addGroup(r *rand.Rand, count int) {
	i := len(w.mckubes)
	namespace, name := fmt.Sprintf("team-%02d", i%namespaces), fmt.Sprintf("app-%05d", i)
	m := &mcv1.McKube{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("mck-" + name), Generation: 1, Finalizers: []string{mcv1.Finalizer}}}
	m.Spec.RTSettings, m.Spec.Criticality = drawSettings(r)
	m.Spec.Podname = name + "-0"
	if count > 1 {
		m.Spec.Podname, m.Spec.Selector = "", &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	}
	template, err := rtdra.Template(m, state.DefaultGranularity)
	if err != nil {
		panic(err) // drawSettings makes settings that hold
	}
	template.UID = types.UID("template-" + name)
	w.mckubes, w.templates = append(w.mckubes, m), append(w.templates, template)
	for replica := range count {
		w.addPod(r, m, template, replica)
	}
}

func (w *world) addPod(r *rand.Rand, m *mcv1.McKube, template *resourcev1.ResourceClaimTemplate, replica int) {
	name := fmt.Sprintf("%s-%d", m.Name, replica)
	uid := types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", len(w.pods)))
	server, err := rtdra.ServerOf(m, uid, "app")
	if err != nil {
		panic(err)
	}
	charge := server.Charge(state.DefaultGranularity)
	node, core := w.drawCore(r, charge)
	p := podOf(m, template.Name, name)
	p.UID = uid
	p.Spec.NodeName = w.nodes[node].Name
	p.Status.Phase = corev1.PodRunning
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: m.Namespace, Name: name + "-rt-app", UID: types.UID("claim-" + name),
		Annotations:     map[string]string{resourcev1.PodResourceClaimAnnotation: rtdra.ClaimName("app")},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: uid, Controller: ptr.To(true)}},
	}, Spec: template.Spec.Spec}
	p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: rtdra.ClaimName("app"), ResourceClaimName: &claim.Name}}
	claim.Status = allocation(p, w.nodes[node].Name, core, charge)
	rn := w.rtNodes[node]
	rn.Spec.Servers = append(rn.Spec.Servers, v1alpha1.RTServer{
		PodUID: uid, Namespace: p.Namespace, Pod: name, Container: "app", Criticality: server.Criticality.String(), PeriodUs: server.Period,
		DeadlineUs: server.Period, BudgetLowUs: server.Low, BudgetHighUs: server.High, Cores: []int32{int32(core)}, Level: v1alpha1.LevelLow, Mode: "Elastic",
	})
	rn.Status.Servers = append(rn.Status.Servers, v1alpha1.RTServerStatus{PodUID: uid, Container: "app", BudgetUs: server.Low, PeriodUs: server.Period, Cores: []int32{int32(core)}, Level: v1alpha1.LevelLow})
	w.pods, w.claims = append(w.pods, p), append(w.claims, claim)
}

// drawCore finds a core with room; three of four containers go to the crowded ones.
func (w *world) drawCore(r *rand.Rand, charge rt.PPM) (node, core int) {
	for {
		node, core = r.IntN(len(w.used)), r.IntN(len(w.used[0]))
		if r.IntN(4) > 0 {
			core %= reservedCores + crowdedCores
		}
		if w.used[node][core]+charge <= coreOf(core).Capacity {
			w.used[node][core] += charge
			return node, core
		}
	}
}

// podOf is a governed pod as a Deployment would make it and the webhook leave it.
func podOf(m *mcv1.McKube, template, name string) *corev1.Pod {
	claim := rtdra.ClaimName("app")
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.Namespace, Name: name,
			Labels: map[string]string{"app": m.Name, mcv1.LabelRT: m.Name, "tier": "control"},
			Annotations: map[string]string{
				mcv1.AnnotationPeriod: fmt.Sprint(m.Spec.RTSettings.Period), mcv1.AnnotationRuntimeLow: fmt.Sprint(m.Spec.RTSettings.RuntimeLow),
				mcv1.AnnotationRuntimeHi: fmt.Sprint(m.Spec.RTSettings.RuntimeHi), mcv1.AnnotationCurrent: v1alpha1.LevelLow,
			},
		},
		Spec: corev1.PodSpec{
			ResourceClaims: []corev1.PodResourceClaim{{Name: claim, ResourceClaimTemplateName: &template}},
			Containers: []corev1.Container{{
				Name: "app", Image: "controls/app:1.0",
				Env: []corev1.EnvVar{{Name: "MODE", Value: "drive"}},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
					Claims:   []corev1.ResourceClaim{{Name: claim}},
				},
			}},
			Tolerations: []corev1.Toleration{
				{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)},
				{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)},
			},
			AutomountServiceAccountToken: ptr.To(false),
		},
	}
}

func allocation(p *corev1.Pod, node string, core int, ppm rt.PPM) resourcev1.ResourceClaimStatus {
	shareID := types.UID(fmt.Sprintf("10000000-0000-4000-8000-%s", p.UID[len(p.UID)-12:]))
	return resourcev1.ResourceClaimStatus{
		Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{
			Request: v1alpha1.RequestCore, Driver: v1alpha1.DriverCPU, Pool: node, Device: rtdra.DeviceName(core), ShareID: &shareID,
			ConsumedCapacity: map[resourcev1.QualifiedName]resource.Quantity{v1alpha1.CapacityRTBandwidth: *resource.NewQuantity(int64(ppm), resource.DecimalSI)},
		}}}},
		ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: p.Name, UID: p.UID}},
	}
}
