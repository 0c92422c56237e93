package optimizer_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/optimizer"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// fleet is the loop that looks for the cheapest packing, and the policy that reads what it has found.
type fleet struct {
	*world
	loop     *optimizer.FleetCost
	policies *optimizer.CostPolicies
}

func newFleet(w *world) *fleet {
	readings := &optimizer.Readings{Client: w.client, CloudProvider: w.provider, Clock: w.clock}
	w.create(test.CostPolicy("p"))
	return &fleet{
		world: w, loop: &optimizer.FleetCost{Readings: readings, Clock: w.clock},
		policies: &optimizer.CostPolicies{Client: w.client, Readings: readings, Recorder: w, Clock: w.clock},
	}
}

// look returns what the policy tells.
func (f *fleet) look() kcloudv1alpha1.CostPolicyStatus {
	f.t.Helper()
	f.clock.SetTime(f.clock.Now().Add(time.Minute))
	if _, err := f.loop.Reconcile(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	return f.policy()
}

func (f *fleet) policy() kcloudv1alpha1.CostPolicyStatus {
	f.t.Helper()
	if _, err := f.policies.Reconcile(f.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "p"}}); err != nil {
		f.t.Fatal(err)
	}
	return f.readCost().Status
}

func (f *fleet) expectMetrics(cost, lowest, packed float64) {
	f.t.Helper()
	for i, want := range []float64{cost, lowest, packed} {
		g := []float64{valueOf(f.t, metrics.FleetCost), valueOf(f.t, metrics.FleetLowestCost), valueOf(f.t, metrics.FleetPackedCost)}[i]
		if !near(g, want) {
			f.t.Errorf("metric %d is %v, want %v", i, g, want)
		}
	}
}

// valueOf is that of the only series of a gauge.
func valueOf(t *testing.T, g *prometheus.GaugeVec) float64 {
	t.Helper()
	if n := series(g); n != 1 {
		t.Fatalf("%d series, want 1", n)
	}
	m := &dto.Metric{}
	if err := g.WithLabelValues().Write(m); err != nil {
		t.Fatal(err)
	}
	return m.GetGauge().GetValue()
}

// lowest is what the policy tells; 0 where it tells nothing.
func lowest(s kcloudv1alpha1.CostPolicyStatus) float64 {
	if s.Packing == nil {
		return 0
	}
	return s.Packing.LowestCostPerHour
}

func onDemand(p *corev1.Pod) {
	p.Spec.NodeSelector = map[string]string{karpenterv1.CapacityTypeLabelKey: karpenterv1.CapacityTypeOnDemand}
}

func TestTheCheapestPackingIsTold(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2), machine("m8", 8, 32, 0, 3))
	pool(w)
	for i, name := range []string{"n1", "n2", "n3"} {
		w.node(name, "m4", "on-demand")
		w.pod(fmt.Sprint("pod-", i), name, "2", "4Gi", onDemand)
	}
	f := newFleet(w)
	// Three pods of 2 cores: one machine of 8 cores holds them. Spot is not for them.
	if s := f.look(); !near(s.CostPerHour, 6) || !near(lowest(s), 3) {
		t.Errorf("%v USD per hour, lowest %v", s.CostPerHour, lowest(s))
	}
	f.expectMetrics(6, 3, 3)

	// A pod that may be on a spot machine goes to one of its own, for 1.2, as the other is full with another one of 2 cores.
	w.pod("pod-3", "n3", "2", "4Gi", onDemand)
	w.pod("spot", "n2", "2", "4Gi")
	if s := f.look(); !near(lowest(s), 4.2) {
		t.Errorf("lowest %v, want 4.2", lowest(s))
	}
	// A pod of a DaemonSet comes with a machine, and a node outside of NodePools stays.
	w.pod("daemon", "n1", "2", "4Gi", func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "d", Controller: ptr.To(true)}}
	})
	n := w.node("other", "m4", "on-demand")
	n.Labels[karpenterv1.NodePoolLabelKey] = "elsewhere"
	n.Annotations = map[string]string{"mckube.io/price-per-hour": "5"}
	if err := w.client.Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	w.pod("resident", "other", "2", "4Gi")
	if s := f.look(); !near(s.CostPerHour, 11) || !near(lowest(s), 4.2) || s.Packing.Pods != 5 {
		t.Errorf("%v USD per hour, %+v, want 11, and 4.2 with 5 pods", s.CostPerHour, s.Packing)
	}
	f.expectMetrics(6, 4.2, 4.2)
	// A policy about some pods has none.
	p := w.readCost()
	p.Spec.WorkloadSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	if err := w.client.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if s := f.look(); lowest(s) != 0 {
		t.Errorf("lowest %v of some pods", lowest(s))
	}
}

// What is not known is not told: a missing price or a NodePool that cannot be read would make the best look better or worse than it is.
func TestNoPackingIsToldWhereSomethingIsUnknown(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2))
	pool(w)
	w.node("n1", "m4", "on-demand")
	w.pod("a", "n1", "2", "4Gi")
	f := newFleet(w)
	known := func() bool {
		s := f.look()
		n := series(metrics.FleetLowestCost)
		if (lowest(s) > 0) != (n == 1) {
			t.Errorf("lowest %v in status, %d series", lowest(s), n)
		}
		return n == 1
	}
	if !known() {
		t.Fatal("nothing is told at first")
	}
	w.provider.err = errors.New("the cloud is away")
	if known() {
		t.Error("a NodePool that cannot be read, and a bound")
	}
	w.provider.err = nil
	n := w.node("unpriced", "m4", "on-demand")
	n.Labels[corev1.LabelTopologyZone] = "elsewhere" // where the type has no offering
	if err := w.client.Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if known() {
		t.Error("a machine without a price, and a bound")
	}
	if err := w.client.Delete(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if !known() {
		t.Error("all is known again, and nothing is told")
	}
	w.clock.SetTime(w.clock.Now().Add(4 * time.Minute)) // in which the loop stood still
	if s := f.policy(); lowest(s) != 0 {
		t.Errorf("an old bound is told: %v", lowest(s))
	}
}

// Pods of one Deployment are a group, though the API server gives each of them tolerations of its own.
func TestPodsThatAskForTheSameAreAGroup(t *testing.T) {
	w := newWorld(t, machine("m64", 64, 256, 0, 20))
	pool(w)
	for i := range 10 {
		w.node(fmt.Sprint("n", i), "m64", "on-demand")
		for j := range 60 {
			w.pod(fmt.Sprintf("pod-%d-%d", i, j), fmt.Sprint("n", i), "1", "1Gi", func(p *corev1.Pod) {
				p.Spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To(int64(300))}}
			})
		}
	}
	// 600 pods of 1 core on machines of 64 cores for 12 as spot: nine are full, and one has 24.
	if s := newFleet(w).look(); !near(lowest(s), 600.0/64*12) || !near(s.Packing.PackedCostPerHour, 120) {
		t.Errorf("%+v", s.Packing)
	}
}

// Six values of a requirement are no other than six with another one among them.
func TestPodsThatAskForDifferentTypesAreNoGroup(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2), machine("m64", 64, 256, 0, 20))
	pool(w)
	w.node("n1", "m64", "on-demand")
	for i, last := range []string{"m64", "m4"} {
		w.pod(fmt.Sprint("pod-", i), "n1", "1", "1Gi", func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"a", "b", "c", "d", "e", last},
				}}}},
			}}}
		})
	}
	// One on a large spot machine for 12, one on a small one for 1.2; or both on the large one, where the second happens to run.
	if s := newFleet(w).look(); !near(lowest(s), 13.2) {
		t.Errorf("%+v, want 13.2", s.Packing)
	}
}

// A pod may go to any machine that is there and that it fits, though no NodePool offers such a machine any more; and a
// machine counts with each resource that pods request.
func TestMachinesThatAreThereCount(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2), machine("old", 4, 16, 0, 1))
	pool(w)
	w.node("n1", "m4", "on-demand")
	n := w.node("n2", "old", "on-demand")
	n.Annotations = map[string]string{"mckube.io/price-per-hour": "0.5"}
	if err := w.client.Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	w.provider.types = w.provider.types[:1] // which withdraws the other
	w.pod("a", "n1", "1", "1Gi")
	w.pod("b", "n2", "1", "1Gi")
	f := newFleet(w)
	if s := f.look(); !near(lowest(s), 0.5) {
		t.Errorf("%+v, want 0.5", s.Packing)
	}
	for i, name := range []corev1.ResourceName{"nvidia.com/gpu", "mainspring.dev/gpu-milli"} {
		w.pod(fmt.Sprint("gpu-", i), "n1", "1", "1Gi", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[name] = resource.MustParse("1")
		})
	}
	// The node has them, whatever it says: both fit.
	if s := f.look(); !near(lowest(s), 2) {
		t.Errorf("%+v, want 2", s.Packing)
	}
}

// No fleet costs less than its bound, nor does one in which a pod has moved to a node that takes it and an empty one is
// closed, whatever pods require and machines have, be it something that no NodePool offers any more.
func TestNoFleetCostsLessThanItsBound(t *testing.T) {
	random := sampling.Rand(t)
	for round := range sampling.Count(20, 400) {
		w := newWorld(t, machine("m2", 2, 8, 0, 1), machine("m4", 4, 16, 0, 1.9), machine("m8", 8, 32, 0, 3.5))
		pool(w)
		fleet := drawFleet(w, random)
		if random.IntN(2) == 0 {
			w.provider.types = w.provider.types[random.IntN(2):]
		}
		f := newFleet(w)
		s := f.look()
		if s.Packing == nil { // a machine whose type was withdrawn has no price
			continue
		}
		p := *s.Packing
		if p.LowestCostPerHour > p.CostPerHour || p.PackedCostPerHour < p.LowestCostPerHour || !near(s.CostPerHour, p.CostPerHour) {
			t.Fatalf("round %d: %+v; the policy says %v", round, p, s.CostPerHour)
		}
		for _, from := range fleet {
			for _, to := range fleet {
				if from == to || len(from.pods) != 1 || !to.takes(from.pods[0]) {
					continue
				}
				if cost := p.CostPerHour - from.price; p.LowestCostPerHour > cost+1e-6 {
					t.Fatalf("round %d: with %s on %s in place of %s all cost %v; %+v", round, from.pods[0].Name, to.Name, from.Name, cost, p)
				}
			}
		}
	}
}

// drawn is a node that a test has drawn, with its pods.
type drawn struct {
	*corev1.Node
	price float64
	left  int64
	pods  []*corev1.Pod
}

func (d *drawn) takes(p *corev1.Pod) bool {
	for key, value := range p.Spec.NodeSelector {
		if d.Labels[key] != value {
			return false
		}
	}
	return p.Spec.Containers[0].Resources.Requests.Cpu().Value() <= d.left
}

func drawFleet(w *world, random *rand.Rand) []*drawn {
	var fleet []*drawn
	for i := range 1 + random.IntN(6) {
		kind := []string{"m2", "m4", "m8"}[random.IntN(3)]
		capacityType := []string{"on-demand", "spot"}[random.IntN(2)]
		d := &drawn{Node: w.node(fmt.Sprint("n", i), kind, capacityType)}
		d.left = d.Status.Allocatable.Cpu().Value()
		d.price = map[string]float64{"m2": 1, "m4": 1.9, "m8": 3.5}[kind] * map[string]float64{"on-demand": 1, "spot": 0.6}[capacityType]
		for j := 0; d.left > 0 && random.IntN(4) > 0; j++ {
			cpu := 1 + random.Int64N(d.left)
			d.left -= cpu
			d.pods = append(d.pods, w.pod(fmt.Sprintf("pod-%d-%d", i, j), d.Name, fmt.Sprint(cpu), "1Gi", func(p *corev1.Pod) {
				switch random.IntN(4) {
				case 0:
					p.Spec.NodeSelector = map[string]string{karpenterv1.CapacityTypeLabelKey: capacityType}
				case 1:
					p.Spec.NodeSelector = map[string]string{corev1.LabelInstanceTypeStable: kind}
				case 2:
					p.Spec.NodeSelector = map[string]string{corev1.LabelInstanceTypeStable: "withdrawn"}
				}
			}))
		}
		fleet = append(fleet, d)
	}
	return fleet
}
