package optimizer_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kwokv1alpha1 "sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/optimizer"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/test"
)

// provider offers the same machines to every NodePool.
type provider struct {
	cloudprovider.CloudProvider
	types []*cloudprovider.InstanceType
	err   error
}

func (p *provider) GetInstanceTypes(context.Context, *karpenterv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	return p.types, p.err
}

func (p *provider) GetSupportedNodeClasses() []status.Object {
	return []status.Object{&kwokv1alpha1.KWOKNodeClass{}}
}

// machine is an instance type with one offering on demand and one as spot for 0.6 of its price. Watts are 10 per core idle and
// 30 loaded.
func machine(name string, cpus, memoryGiB, gpus int, price float64) *cloudprovider.InstanceType {
	in := func(key string, values ...string) *scheduling.Requirement {
		return scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, values...)
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(fmt.Sprint(cpus)), corev1.ResourceMemory: resource.MustParse(fmt.Sprintf("%dGi", memoryGiB)), corev1.ResourcePods: resource.MustParse("110"),
	}
	if gpus > 0 {
		capacity["nvidia.com/gpu"] = resource.MustParse(fmt.Sprint(gpus))
	}
	it := &cloudprovider.InstanceType{
		Name: name, Capacity: capacity, Overhead: &cloudprovider.InstanceTypeOverhead{},
		Requirements: scheduling.NewRequirements(in(corev1.LabelInstanceTypeStable, name), in(corev1.LabelArchStable, "amd64"), in(corev1.LabelOSStable, "linux"),
			in(corev1.LabelTopologyZone, "z"), in(karpenterv1.CapacityTypeLabelKey, "on-demand", "spot"),
			in(mckubev1alpha1.LabelWattsIdle, fmt.Sprint(10*cpus)), in(mckubev1alpha1.LabelWattsMax, fmt.Sprint(30*cpus))),
	}
	for capacityType, factor := range map[string]float64{"on-demand": 1, "spot": 0.6} {
		it.Offerings = append(it.Offerings, &cloudprovider.Offering{
			Price: price * factor, Available: true,
			Requirements: scheduling.NewRequirements(in(corev1.LabelTopologyZone, "z"), in(karpenterv1.CapacityTypeLabelKey, capacityType)),
		})
	}
	return it
}

// world is a controller over objects that a test makes.
type world struct {
	t        *testing.T
	client   client.Client
	clock    *clocktesting.FakePassiveClock
	provider *provider
	events   []events.Event
	*optimizer.Controller
}

func (w *world) Publish(list ...events.Event) { w.events = append(w.events, list...) }

func newWorld(t *testing.T, types ...*cloudprovider.InstanceType) *world {
	t.Helper()
	scheme := clientgoscheme.Scheme // in which Karpenter registers its types
	if err := kcloudv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, clock: clocktesting.NewFakePassiveClock(time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)), provider: &provider{types: types}}
	w.client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&kcloudv1alpha1.WorkloadOptimizer{}, &kcloudv1alpha1.CostPolicy{}, &kcloudv1alpha1.PowerPolicy{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).Build()
	readings := &optimizer.Readings{Client: w.client, CloudProvider: w.provider, Clock: w.clock}
	w.Controller = &optimizer.Controller{Client: w.client, Readings: readings, Recorder: w, Clock: w.clock}
	return w
}

func (w *world) create(objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		if err := w.client.Create(w.t.Context(), o); err != nil {
			w.t.Fatal(err)
		}
	}
}

// node runs on a machine of a type, as the provider would label it.
func (w *world) node(name, instanceType, capacityType string) *corev1.Node {
	w.t.Helper()
	for _, it := range w.provider.types {
		if it.Name != instanceType {
			continue
		}
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			karpenterv1.NodePoolLabelKey: "pool", corev1.LabelInstanceTypeStable: it.Name, corev1.LabelTopologyZone: "z", karpenterv1.CapacityTypeLabelKey: capacityType,
			mckubev1alpha1.LabelWattsIdle: it.Requirements.Get(mckubev1alpha1.LabelWattsIdle).Any(), mckubev1alpha1.LabelWattsMax: it.Requirements.Get(mckubev1alpha1.LabelWattsMax).Any(),
		}}}
		n.Status.Capacity, n.Status.Allocatable = it.Capacity, it.Capacity
		w.create(n)
		return n
	}
	w.t.Fatalf("no type %s", instanceType)
	return nil
}

func (w *world) pod(name, node, cpu, memory string, changes ...func(*corev1.Pod)) *corev1.Pod {
	w.t.Helper()
	p := test.Pod(name, cpu)
	p.UID = types.UID(name)
	p.Labels = map[string]string{kcloudv1alpha1.LabelWorkloadOptimizer: "web"}
	p.Spec.NodeName = node
	p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse(memory)
	if node != "" {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	for _, change := range changes {
		change(p)
	}
	w.create(p)
	return p
}

func (w *world) optimizer(changes ...test.WorkloadOptimizerChange) *kcloudv1alpha1.WorkloadOptimizer {
	w.t.Helper()
	wo := test.WorkloadOptimizer("web", changes...)
	wo.Spec.PodSelector = nil
	w.create(wo)
	return wo
}

func (w *world) reconcile() *kcloudv1alpha1.WorkloadOptimizer {
	w.t.Helper()
	key := types.NamespacedName{Namespace: test.Namespace, Name: "web"}
	if _, err := w.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		w.t.Fatal(err)
	}
	wo := &kcloudv1alpha1.WorkloadOptimizer{}
	if err := w.client.Get(w.t.Context(), key, wo); err != nil {
		w.t.Fatal(err)
	}
	return wo
}

func expect(t *testing.T, wo *kcloudv1alpha1.WorkloadOptimizer, phase kcloudv1alpha1.WorkloadOptimizerPhase, condition string, want metav1.ConditionStatus, reason, text string) {
	t.Helper()
	if wo.Status.Phase != phase {
		t.Errorf("phase %s, want %s", wo.Status.Phase, phase)
	}
	c := meta.FindStatusCondition(wo.Status.Conditions, condition)
	if c == nil || c.Status != want || c.Reason != reason || !strings.Contains(c.Message, text) {
		t.Errorf("condition %s is %+v, want %s, %s, %q", condition, c, want, reason, text)
	}
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-3 }

func pool(w *world) {
	w.create(test.NodePool("pool", test.CapacityTypes(karpenterv1.CapacityTypeOnDemand, karpenterv1.CapacityTypeSpot)))
}

// Half of a machine for 2 USD is 1 USD; the rest, which no pod requests, is told apart.
func TestStatusTellsWhatPodsCostAndDraw(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2))
	pool(w)
	w.node("n1", "m4", "on-demand")
	w.optimizer(test.CostsAtMost(1.5), test.DrawsAtMost(90))
	w.pod("a", "n1", "2", "8Gi")
	wo := w.reconcile()
	s := wo.Status
	if !near(s.CurrentCost, 1) || !near(s.IdleCost, 1) || !near(s.CurrentPower, 60) || !near(s.IdlePower, 20) || s.AssignedNode != "n1" || s.Replicas != 1 || s.ReadyReplicas != 1 {
		t.Errorf("%+v", s)
	}
	// A spot machine for 1.2 could be filled.
	if !near(s.LowestCost, 0.6) || s.OptimizationScore == nil {
		t.Errorf("lowest cost %v, score %v", s.LowestCost, s.OptimizationScore)
	}
	expect(t, wo, kcloudv1alpha1.PhaseOptimized, kcloudv1alpha1.ConditionCostOptimized, metav1.ConditionTrue, optimizer.ReasonWithinBudget, "1.0000 of 1.5")
	expect(t, wo, kcloudv1alpha1.PhaseOptimized, kcloudv1alpha1.ConditionDataQuality, metav1.ConditionTrue, optimizer.ReasonModelled, "")
	if len(w.events) != 1 || w.events[0].Reason != "WorkloadOptimized" || s.LastOptimizationTime == nil {
		t.Errorf("events %+v at %v", w.events, s.LastOptimizationTime)
	}
	w.reconcile()
	if len(w.events) != 1 {
		t.Errorf("%d events after another look", len(w.events))
	}
}

// Another pod on the node takes its part of the idle cost, and the score rises.
func TestNeighboursShareWhatIsIdle(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2))
	pool(w)
	w.node("n1", "m4", "on-demand")
	w.optimizer()
	w.pod("a", "n1", "1", "4Gi")
	before := w.reconcile().Status
	w.pod("stranger", "n1", "2", "8Gi", func(p *corev1.Pod) { p.Labels = nil })
	after := w.reconcile().Status
	if !near(before.CurrentCost, 0.5) || !near(before.IdleCost, 1.5) || !near(after.CurrentCost, 0.5) || !near(after.IdleCost, 0.5/3) {
		t.Errorf("alone %v and %v, beside another %v and %v", before.CurrentCost, before.IdleCost, after.CurrentCost, after.IdleCost)
	}
	if *after.OptimizationScore <= *before.OptimizationScore {
		t.Errorf("score %v alone, %v beside another", *before.OptimizationScore, *after.OptimizationScore)
	}
}

func TestLimitsThatNoMachineCanKeepAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		changes      []test.WorkloadOptimizerChange
		reason, text string
	}{
		"power":     {[]test.WorkloadOptimizerChange{test.DrawsAtMost(1)}, optimizer.ReasonPowerTooLow, "powerConstraints.maxPowerUsage is 1; 1 pods draw at least"},
		"cost":      {[]test.WorkloadOptimizerChange{test.CostsAtMost(0.001)}, optimizer.ReasonCostTooLow, "costConstraints.maxCostPerHour is 0.001"},
		"resources": {[]test.WorkloadOptimizerChange{func(wo *kcloudv1alpha1.WorkloadOptimizer) { wo.Spec.Resources.CPU = resource.MustParse("99") }}, optimizer.ReasonNoMachine, "99"},
		"devices":   {[]test.WorkloadOptimizerChange{func(wo *kcloudv1alpha1.WorkloadOptimizer) { wo.Spec.Resources.NPU = 1 }}, optimizer.ReasonNoMachine, "npu"},
		"a taint":   {nil, optimizer.ReasonNoMachine, "tolerate the taints of no NodePool"},
		"labels": {[]test.WorkloadOptimizerChange{func(wo *kcloudv1alpha1.WorkloadOptimizer) {
			wo.Spec.PlacementPolicy = &kcloudv1alpha1.PlacementPolicy{NodeSelector: map[string]string{"accelerator": "nvidia-gpu"}}
		}}, optimizer.ReasonNoMachine, "accelerator"},
		"replicas": {[]test.WorkloadOptimizerChange{test.CostsAtMost(1), func(wo *kcloudv1alpha1.WorkloadOptimizer) {
			wo.Spec.AutoScaling = &kcloudv1alpha1.AutoScaling{MinReplicas: 50, MaxReplicas: 60}
		}}, optimizer.ReasonCostTooLow, "50 pods"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, machine("m4", 4, 16, 0, 2), machine("g8", 8, 32, 2, 9))
			if name == "a taint" {
				w.create(test.NodePool("pool", test.NodeTaints(corev1.Taint{Key: "a", Effect: corev1.TaintEffectNoSchedule})))
			} else {
				pool(w)
			}
			w.optimizer(c.changes...)
			if name == "a taint" {
				w.pod("a", "", "1", "1Gi")
			}
			expect(t, w.reconcile(), kcloudv1alpha1.PhaseFailed, kcloudv1alpha1.ConditionFeasible, metav1.ConditionFalse, c.reason, c.text)
		})
	}
}

// The figures stay, and whether it is feasible is not known, while the provider does not answer.
func TestNothingIsSaidOfMachinesThatTheProviderDoesNotName(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2))
	pool(w)
	w.provider.err = errors.New("down")
	w.optimizer()
	expect(t, w.reconcile(), kcloudv1alpha1.PhasePending, kcloudv1alpha1.ConditionFeasible, metav1.ConditionUnknown, optimizer.ReasonUnreadable, "NodePool pool")
}

func TestWithoutNodePoolsNoMachineIsFeasible(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2))
	w.optimizer()
	expect(t, w.reconcile(), kcloudv1alpha1.PhaseFailed, kcloudv1alpha1.ConditionFeasible, metav1.ConditionFalse, optimizer.ReasonNoMachine, "There is no NodePool")
}

func series(c prometheus.Collector) int {
	found := make(chan prometheus.Metric, 100)
	c.Collect(found)
	return len(found)
}

// A WorkloadOptimizer that is gone leaves no series behind.
func TestMetricsGoWithTheWorkload(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2))
	pool(w)
	wo := w.optimizer()
	w.reconcile()
	if n := series(metrics.WorkloadCost); n != 1 {
		t.Fatalf("%d series, want 1", n)
	}
	if err := w.client.Delete(t.Context(), wo); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(wo)}); err != nil {
		t.Fatal(err)
	}
	if n := series(metrics.WorkloadCost); n != 0 {
		t.Errorf("%d series of a workload that is gone", n)
	}
}

// Pods that run where no NodePool opens machines any more are no failure: they run.
func TestPodsThatRunHaveTheirMachine(t *testing.T) {
	for name, place := range map[string]func(*world){
		"without a NodePool":  func(*world) {},
		"bound to their node": pool,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, machine("m4", 4, 16, 0, 2))
			n := w.node("n1", "m4", "on-demand")
			n.Annotations = map[string]string{mckubev1alpha1.AnnotationPricePerHour: "2"}
			if err := w.client.Update(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			place(w)
			w.optimizer(test.CostsAtMost(5))
			w.pod("a", "n1", "2", "8Gi", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "n1"} })
			expect(t, w.reconcile(), kcloudv1alpha1.PhaseOptimized, kcloudv1alpha1.ConditionFeasible, metav1.ConditionTrue, optimizer.ReasonMachines, "")
		})
	}
}

// One term of the affinity is enough, and a taint of effect PreferNoSchedule keeps no pod away.
func TestMachinesAreFoundAsKarpenterFindsThem(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2))
	w.create(test.NodePool("pool", test.NodeTaints(corev1.Taint{Key: "a", Effect: corev1.TaintEffectPreferNoSchedule})))
	w.optimizer()
	zone := func(name string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}
	}
	w.pod("a", "", "1", "1Gi", func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{zone("closed"), zone("z")},
		}}}
	})
	expect(t, w.reconcile(), kcloudv1alpha1.PhasePending, kcloudv1alpha1.ConditionFeasible, metav1.ConditionTrue, optimizer.ReasonMachines, "")
}

// A tenant's pods of many kinds are not compared with every machine.
func TestTooManyKindsOfPodsAreNotCompared(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2))
	pool(w)
	w.optimizer()
	for i := range 40 {
		w.pod(fmt.Sprintf("p%d", i), "", fmt.Sprintf("%dm", 100+i), "1Gi")
	}
	expect(t, w.reconcile(), kcloudv1alpha1.PhasePending, kcloudv1alpha1.ConditionFeasible, metav1.ConditionUnknown, optimizer.ReasonTooManyShapes, "40 pods")
}

// A limit is not said to be kept where a price is unknown, and messages are bounded.
func TestALimitIsNotKeptAtAnUnknownPrice(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2))
	pool(w)
	for _, o := range w.provider.types[0].Offerings {
		o.Price = 0
	}
	w.node("n1", "m4", "on-demand")
	w.optimizer(test.CostsAtMost(0.01))
	long := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"x": strings.Repeat("y", 5000)} }
	w.pod("a", "n1", "2", "8Gi", long)
	wo := w.reconcile()
	expect(t, wo, kcloudv1alpha1.PhaseOptimizing, kcloudv1alpha1.ConditionCostOptimized, metav1.ConditionUnknown, optimizer.ReasonPriceUnknown, "n1")
	if len(w.events) != 0 {
		t.Errorf("events %+v", w.events)
	}
	w.pod("b", "", "2", "8Gi", long)
	c := meta.FindStatusCondition(w.reconcile().Status.Conditions, kcloudv1alpha1.ConditionFeasible)
	if c.Status != metav1.ConditionFalse || len(c.Message) > 1100 {
		t.Errorf("%s with %d bytes", c.Status, len(c.Message))
	}
}

// A pod that has its node and does not become ready is no success.
func TestPodsThatAreNotReadyAreNotOptimized(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2))
	pool(w)
	w.node("n1", "m4", "on-demand")
	w.optimizer()
	w.pod("a", "n1", "2", "8Gi", func(p *corev1.Pod) { p.Status.Conditions = nil })
	expect(t, w.reconcile(), kcloudv1alpha1.PhaseOptimizing, kcloudv1alpha1.ConditionProgressing, metav1.ConditionTrue, optimizer.ReasonPodsNotReady, "1 of 1")
	if len(w.events) != 0 {
		t.Errorf("events %+v", w.events)
	}
}

func TestLabelsThatNoNodeCanHaveAreNamed(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2))
	pool(w)
	w.optimizer(func(wo *kcloudv1alpha1.WorkloadOptimizer) {
		wo.Spec.PlacementPolicy = &kcloudv1alpha1.PlacementPolicy{NodeSelector: map[string]string{"accelerator": "nvidia gpu"}}
	})
	expect(t, w.reconcile(), kcloudv1alpha1.PhaseFailed, kcloudv1alpha1.ConditionReady, metav1.ConditionFalse, optimizer.ReasonInvalid, "spec.placementPolicy.nodeSelector: Invalid value: \"nvidia gpu\"")
}

func TestGPUsOfAnyVendorAreFound(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2), machine("g8", 8, 32, 2, 9))
	pool(w)
	w.optimizer(func(wo *kcloudv1alpha1.WorkloadOptimizer) { wo.Spec.Resources.GPU = 2 })
	expect(t, w.reconcile(), kcloudv1alpha1.PhasePending, kcloudv1alpha1.ConditionFeasible, metav1.ConditionTrue, optimizer.ReasonMachines, "")
}

// What is not known lowers the quality and takes the score away; it never raises it.
func TestMissingDataIsSaidAndNeverRaisesTheScore(t *testing.T) {
	for name, c := range map[string]struct {
		spoil        func(*world)
		status       metav1.ConditionStatus
		reason, text string
	}{
		"no price": {func(w *world) {
			for _, o := range w.provider.types[0].Offerings {
				o.Price = 0
			}
		}, metav1.ConditionFalse, optimizer.ReasonPriceUnknown, "n1"},
		"a price that is no number": {func(w *world) {
			for _, o := range w.provider.types[0].Offerings {
				o.Price = math.NaN()
			}
		}, metav1.ConditionFalse, optimizer.ReasonPriceUnknown, "n1"},
		"the provider does not answer": {func(w *world) { w.provider.err = errors.New("down") }, metav1.ConditionFalse, optimizer.ReasonPriceUnknown, "n1"},
		"another type now":             {func(w *world) { w.provider.types[0].Name = "renamed" }, metav1.ConditionFalse, optimizer.ReasonPriceUnknown, "n1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, machine("m4", 4, 16, 0, 2))
			pool(w)
			w.node("n1", "m4", "on-demand")
			w.optimizer()
			w.pod("a", "n1", "2", "8Gi")
			if w.reconcile().Status.OptimizationScore == nil {
				t.Fatal("no score")
			}
			c.spoil(w)
			w.clock.SetTime(w.clock.Now().Add(15 * time.Second))
			wo := w.reconcile()
			if wo.Status.Phase == kcloudv1alpha1.PhaseFailed && w.provider.err != nil {
				t.Error("it has Failed because the provider does not answer")
			}
			condition := meta.FindStatusCondition(wo.Status.Conditions, kcloudv1alpha1.ConditionDataQuality)
			if condition.Status != c.status || condition.Reason != c.reason || !strings.Contains(condition.Message, c.text) {
				t.Errorf("%+v", condition)
			}
			if wo.Status.OptimizationScore != nil {
				t.Errorf("score %v", *wo.Status.OptimizationScore)
			}
		})
	}
}

func TestWattsOfAnUnknownMachineComeFromTheDefaultModel(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2))
	pool(w)
	n := w.node("n1", "m4", "on-demand")
	delete(n.Labels, mckubev1alpha1.LabelWattsIdle)
	if err := w.client.Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	w.optimizer()
	w.pod("a", "n1", "4", "16Gi")
	wo := w.reconcile()
	// 3.5 W per core and 0.392 W per GiB.
	if !near(wo.Status.CurrentPower, 20.3) {
		t.Errorf("%v W", wo.Status.CurrentPower)
	}
	expect(t, wo, kcloudv1alpha1.PhaseOptimized, kcloudv1alpha1.ConditionDataQuality, metav1.ConditionFalse, optimizer.ReasonDefault, "n1")
}

// A limit may be broken while pods are replaced; after that the score is 0.
func TestABrokenLimitCostsTheScoreAfterItsGrace(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2))
	pool(w)
	w.node("n1", "m4", "on-demand")
	w.optimizer(test.CostsAtMost(1.5))
	w.pod("a", "n1", "3", "12Gi")
	w.reconcile()
	w.pod("b", "n1", "1", "4Gi")
	wo := w.reconcile()
	expect(t, wo, kcloudv1alpha1.PhaseOptimizing, kcloudv1alpha1.ConditionCostOptimized, metav1.ConditionFalse, optimizer.ReasonOverBudget, "2.0000 of 1.5")
	expect(t, wo, kcloudv1alpha1.PhaseOptimizing, kcloudv1alpha1.ConditionDegraded, metav1.ConditionTrue, optimizer.ReasonBroken, "")
	if *wo.Status.OptimizationScore == 0 {
		t.Error("the score is 0 at once")
	}
	w.clock.SetTime(w.clock.Now().Add(6 * time.Minute))
	if wo = w.reconcile(); *wo.Status.OptimizationScore != 0 {
		t.Errorf("score %v after six minutes", *wo.Status.OptimizationScore)
	}
}

func TestPodsThatWaitAreProgress(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2))
	pool(w)
	w.optimizer()
	w.pod("a", "", "1", "1Gi")
	wo := w.reconcile()
	expect(t, wo, kcloudv1alpha1.PhasePending, kcloudv1alpha1.ConditionProgressing, metav1.ConditionTrue, optimizer.ReasonPodsWait, "1 of 1")
	w.node("n1", "m4", "on-demand")
	w.pod("b", "n1", "1", "1Gi")
	w.pod("c", "gone", "1", "1Gi") // whose node was deleted
	wo = w.reconcile()
	expect(t, wo, kcloudv1alpha1.PhaseOptimizing, kcloudv1alpha1.ConditionProgressing, metav1.ConditionTrue, optimizer.ReasonPodsWait, "2 of 3")
	if wo.Status.OptimizationScore != nil {
		t.Errorf("score %v while pods wait", *wo.Status.OptimizationScore)
	}
	p := &corev1.Pod{}
	p.Namespace, p.Name = test.Namespace, "a"
	if err := w.client.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	// Both that are left were ready when their kubelets last said so.
	expect(t, w.reconcile(), kcloudv1alpha1.PhaseOptimizing, kcloudv1alpha1.ConditionProgressing, metav1.ConditionTrue, optimizer.ReasonPodsWait, "1 of 2")
}

func TestSuspendedForgetsItsFigures(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2))
	pool(w)
	w.node("n1", "m4", "on-demand")
	w.optimizer()
	w.pod("a", "n1", "2", "8Gi")
	wo := w.reconcile()
	wo.Annotations = map[string]string{kcloudv1alpha1.AnnotationDisabled: "true"}
	if err := w.client.Update(t.Context(), wo); err != nil {
		t.Fatal(err)
	}
	wo = w.reconcile()
	expect(t, wo, kcloudv1alpha1.PhaseSuspended, kcloudv1alpha1.ConditionReady, metav1.ConditionFalse, optimizer.ReasonSuspended, "")
	if wo.Status.CurrentCost != 0 || wo.Status.OptimizationScore != nil || len(wo.Status.Conditions) != 1 {
		t.Errorf("%+v", wo.Status)
	}
}
