package disruption_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	karpdisruption "sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	karptest "sigs.k8s.io/karpenter/pkg/test"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/disruption"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// sized is an instance type that is offered at the price with each capacity type.
func sized(name, cpu string, price float64, capacityTypes ...string) *karpcloud.InstanceType {
	var offerings []karpcloud.Offering
	for _, capacityType := range capacityTypes {
		offerings = append(offerings, karpcloud.Offering{Available: true, Price: price, Requirements: labels(map[string]string{
			karpv1.CapacityTypeLabelKey: capacityType, corev1.LabelTopologyZone: "test-zone-1",
		})})
	}
	return fake.NewInstanceType(name, fake.WithOfferings(offerings...), fake.WithResources(corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("10"),
	}))
}

// spread is a consolidating world of huge nodes at 1 USD per hour, each with four pods of 0.9 CPU, one below the other.
// Two small machines at 0.2 USD hold the pods of one: no single machine that is cheaper does, so Karpenter does nothing.
func spread(t *testing.T, o disruption.RepackOptions, nodes ...string) *world {
	t.Helper()
	w := consolidating(t)
	w.cloud.InstanceTypes = []*karpcloud.InstanceType{
		sized("huge", "4", 1, karpv1.CapacityTypeOnDemand), sized("small", "2", 0.2, karpv1.CapacityTypeOnDemand),
	}
	w.repack = o
	w.restart()
	for _, node := range nodes {
		w.node(node, "huge")
		w.four(node, func(*corev1.Pod) {})
	}
	return w
}

// heavy is a pod of 0.9 CPU.
func (w *world) heavy(name, node string, edit func(*corev1.Pod)) *corev1.Pod {
	w.Helper()
	pod := statetest.Pod("default", name, "", "app")
	pod.CreationTimestamp, pod.Labels["app"] = metav1.Time{}, name
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web-1", Controller: ptr.To(true)}}
	pod.Spec.NodeName, pod.Spec.Containers[0].Image = node, "app"
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("900m")}
	pod.Status.Phase = corev1.PodRunning
	edit(pod)
	w.create(pod)
	w.must(w.cluster.UpdatePod(w.ctx, pod))
	w.must(w.store.Update(pod))
	return pod
}

var repacks = disruption.RepackOptions{Enabled: true, MinSavingsPerMove: 0.01}

// replacements are the NodeClaims that were opened, with the instance types that each may be.
func (w *world) replacements() map[string][]string {
	w.Helper()
	list, out := &karpv1.NodeClaimList{}, map[string][]string{}
	w.must(w.client.List(w.ctx, list))
	for _, c := range list.Items {
		for _, r := range c.Spec.Requirements {
			if r.Key == corev1.LabelInstanceTypeStable && c.Status.ProviderID == "" {
				out[c.Name] = r.Values
			}
		}
	}
	return out
}

// expectServing expects nodes to serve as if nothing had been tried.
func (w *world) expectServing(nodes ...string) {
	w.Helper()
	w.pass()
	if got, opened := w.disrupted(), w.replacements(); len(got) > 0 || len(opened) > 0 {
		w.Errorf("%v are being closed for %v: %q", got, opened, w.messages())
	}
	for _, node := range nodes {
		w.expectUntouched(node)
	}
}

// Stock closes neither node, and both are closed for four machines, in one command: none before all four serve.
func TestNodesAreReplacedByMoreAndCheaperMachines(t *testing.T) {
	w := spread(t, repacks, "a", "b")
	w.passOf(w.stock())
	if got := w.disrupted(); len(got) > 0 {
		t.Fatalf("stock closes %v, and so repacking shows nothing", got)
	}
	w.cluster.MarkUnconsolidated()
	saved := counted(t, metrics.RepackSavings)
	w.pass()
	opened := w.replacements()
	if got := w.disrupted(); !slices.Equal(got, []string{"a", "b"}) || len(opened) != 4 {
		t.Fatalf("%v are being closed for %v, want a and b for four: %q", got, opened, w.messages())
	}
	for name, types := range opened {
		if !slices.Equal(types, []string{"small"}) {
			t.Errorf("%s may be any of %v", name, types)
		}
	}
	if got := counted(t, metrics.RepackSavings) - saved; got < 28.7 || got > 28.9 {
		t.Errorf("it says that it saves %g USD, want 24 times 1.2", got)
	}
	if commands := w.queue.GetCommands(); len(commands) != 1 {
		t.Errorf("%d commands, want one", len(commands))
	}
	left := len(opened)
	for name := range opened {
		w.carry("a")
		for _, node := range []string{"a", "b"} {
			if claim := w.claim(node); claim.DeletionTimestamp != nil {
				t.Errorf("%s is deleted, and %d machines are not ready", node, left)
			}
		}
		w.join(name)
		left--
	}
	w.carry("a")
	for _, node := range []string{"a", "b"} {
		if claim := w.claim(node); claim.DeletionTimestamp == nil {
			t.Errorf("%s is not deleted, and all machines are ready", node)
		}
	}
}

func (w *world) claim(name string) *karpv1.NodeClaim {
	w.Helper()
	claim := &karpv1.NodeClaim{}
	w.must(w.client.Get(w.ctx, types.NamespacedName{Name: name}, claim))
	return claim
}

// The provider refuses one of the machines: the nodes serve on.
func TestARepackWhoseMachineDoesNotComeIsUndoneWhole(t *testing.T) {
	w := spread(t, repacks, "a", "b")
	w.pass()
	opened := w.replacements()
	if len(opened) != 4 {
		t.Fatalf("opens %v, want four", opened)
	}
	refused := ""
	for name := range opened {
		if refused == "" {
			refused = name
			continue
		}
		w.join(name)
	}
	w.must(w.client.Delete(w.ctx, w.claim(refused)))
	w.forgetClaim(refused)
	w.sync()
	w.carry("a")
	for range 2 { // it does not begin again at once
		w.clock.Step(5 * time.Minute)
		w.cluster.MarkUnconsolidated()
		w.sync()
		w.pass()
		for _, node := range []string{"a", "b"} {
			w.expectUntouched(node)
		}
	}
	w.clock.Step(30 * time.Minute)
	w.sync()
	w.pass()
	if got := w.disrupted(); !slices.Contains(got, "a") || !slices.Contains(got, "b") {
		t.Errorf("half an hour later %v are being closed, want a and b: %q", got, w.messages())
	}
}

// forgetClaim takes the finalizers of a NodeClaim away, as its controller does when the machine is gone.
func (w *world) forgetClaim(name string) {
	w.Helper()
	claim := &karpv1.NodeClaim{}
	if err := w.client.Get(w.ctx, types.NamespacedName{Name: name}, claim); client.IgnoreNotFound(err) != nil {
		w.Fatal(err)
	} else if err == nil && len(claim.Finalizers) > 0 {
		claim.Finalizers = nil
		w.must(w.client.Update(w.ctx, claim))
	}
}

func TestWhatIsNotRepacked(t *testing.T) {
	for name, test := range map[string]struct {
		options disruption.RepackOptions
		edit    func(w *world)
	}{
		"it is off":                              {disruption.RepackOptions{}, func(*world) {}},
		"each move would have to save more":      {disruption.RepackOptions{Enabled: true, MinSavingsPerMove: 3.7}, func(*world) {}}, // 0.6 USD/h, 24 h, 4 pods
		"the price of the node is not known":     {repacks, func(w *world) { w.cloud.InstanceTypes[0].Offerings = nil }},
		"a CostPolicy of the pods asks for more": {repacks, func(w *world) { w.costPolicy("app", "a-1", 14.4) }}, // 0.6 USD/h for 24 h
		"a CostPolicy cannot be read":            {repacks, func(w *world) { w.costPolicy("app", "not/a/label/value", 0) }},
		"the budgets allow none":                 {repacks, func(w *world) { w.setBudget("0") }},
		"a pod must not be disrupted":            {repacks, func(w *world) { w.heavyOn("a", map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}) }},
		"the price of the machines is 0":         {repacks, func(w *world) { w.cloud.InstanceTypes[1].Offerings[0].Price = 0 }},
		"the price of the machines is negative":  {repacks, func(w *world) { w.cloud.InstanceTypes[1].Offerings[0].Price = -3 }},
		"the price of the machines is no number": {repacks, func(w *world) { w.cloud.InstanceTypes[1].Offerings[0].Price = math.NaN() }},
		"the NodePool asks for more types": {repacks, func(w *world) {
			w.require(karpv1.NodeSelectorRequirementWithMinValues{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpExists, MinValues: ptr.To(2)})
		}},
		"only a NodePool of lower weight has the machines": {repacks, func(w *world) {
			w.require(karpv1.NodeSelectorRequirementWithMinValues{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"huge"}})
			other := karptest.NodePool(karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "last-resort"}, Spec: karpv1.NodePoolSpec{Weight: ptr.To[int32](1)}})
			w.create(other)
		}},
		"the machines are sold out":                  {repacks, func(w *world) { w.cloud.InstanceTypes[1].Offerings[0].Available = false }},
		"the machines cost as much":                  {repacks, func(w *world) { w.cloud.InstanceTypes[1].Offerings[0].Price = 0.5 }},
		"another action has the node in hand":        {repacks, func(w *world) { w.submit("replace-1", "a") }},
		"a pod waits for the machines that it opens": {repacks, func(w *world) { w.waiting() }},
	} {
		t.Run(name, func(t *testing.T) {
			w := spread(t, test.options, "a")
			test.edit(w)
			w.sync()
			w.expectServing("a")
		})
	}
}

// costPolicy asks of pods with a label that each move saves so much.
func (w *world) costPolicy(label, value string, least float64) {
	w.Helper()
	policy := &kcloudv1alpha1.CostPolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy"}}
	policy.Spec.MinSavingsPerMove = &least
	policy.Spec.WorkloadSelector = &metav1.LabelSelector{MatchLabels: map[string]string{label: value}}
	w.must(w.client.Create(w.ctx, policy))
	w.Cleanup(func() { w.must(w.client.Delete(context.WithoutCancel(w.ctx), policy)) })
}

// require has the NodePool require something of its machines, at a high weight.
func (w *world) require(r karpv1.NodeSelectorRequirementWithMinValues) {
	w.Helper()
	w.pool.Spec.Weight = ptr.To[int32](50)
	w.pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{r}
	w.must(w.client.Update(w.ctx, w.pool))
}

func (w *world) setBudget(nodes string) {
	w.Helper()
	w.pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: nodes}}
	w.must(w.client.Update(w.ctx, w.pool))
}

// heavyOn annotates a pod of a node.
func (w *world) heavyOn(node string, annotations map[string]string) {
	w.Helper()
	pod := &corev1.Pod{}
	w.must(w.client.Get(w.ctx, types.NamespacedName{Namespace: "default", Name: node + "-1"}, pod))
	pod.Annotations = annotations
	w.must(w.client.Update(w.ctx, pod))
}

// waiting is a pod that no node holds.
func (w *world) waiting() {
	w.Helper()
	pod := w.heavy("waiting", "", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending })
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	w.must(w.client.Status().Update(w.ctx, pod))
}

// What a move saves counts for as long as the pods live at most.
func TestASavingCountsWhileThePodsLive(t *testing.T) {
	for _, test := range []struct {
		lives  time.Duration
		closes int
	}{{10 * time.Minute, 0}, {2 * time.Hour, 1}, {50 * 365 * 24 * time.Hour, 1}} {
		t.Run(test.lives.String(), func(t *testing.T) {
			w := spread(t, disruption.RepackOptions{Enabled: true, MinSavingsPerMove: 0.1}) // 4 pods: 0.4 USD, of 0.6 USD/h
			w.node("a", "huge")
			w.four("a", w.lives(test.lives))
			w.pass()
			if got := w.disrupted(); len(got) != test.closes {
				t.Errorf("it closes %v: %q", got, w.messages())
			}
		})
	}
}

// Of two nodes a budget of one lets one go.
func TestARepackKeepsTheBudgets(t *testing.T) {
	w := spread(t, repacks, "a", "b")
	w.setBudget("1")
	w.pass()
	if got, opened := w.disrupted(), w.replacements(); len(got) != 1 || len(opened) != 2 {
		t.Errorf("%v are being closed for %v, want one for two: %q", got, opened, w.messages())
	}
}

// A node with a High container stays whatever it costs; the other goes.
func TestNoHighContainerIsMovedForItsPrice(t *testing.T) {
	w := spread(t, repacks, "b")
	w.cloud.InstanceTypes = append(w.cloud.InstanceTypes, machine("edge", 1.2, statetest.Cores(1)...))
	w.node("a", "edge", statetest.Cores(1)...)
	w.pod("control", "a", 10)
	for _, pod := range []string{"1", "2", "3"} {
		w.heavy("a-"+pod, "a", func(*corev1.Pod) {})
	}
	w.pass()
	if got := w.disrupted(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("%v are being closed, want b: %q", got, w.messages())
	}
	w.expectUntouched("a")
}

// announcing does something when the candidates of a command are announced.
type announcing struct {
	events.Recorder
	do func()
}

func (a announcing) Publish(list ...events.Event) {
	a.Recorder.Publish(list...)
	if slices.ContainsFunc(list, func(e events.Event) bool { return strings.HasPrefix(e.Message, "Consolidation candidate: ") }) {
		a.do()
	}
}

// Between the search and the command a pod says that it must not be disrupted.
func TestACommandThatNoLongerHoldsIsNotBegun(t *testing.T) {
	w := spread(t, repacks, "a")
	outdated := counted(t, metrics.RepackSearches.WithLabelValues(metrics.RepackOutdated))
	w.dependencies.Recorder = announcing{w.events, func() {
		w.heavyOn("a", map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"})
		w.sync()
	}}
	w.loop = disruption.NewController(w.ctx, w.dependencies)
	w.pass()
	if got := w.disrupted(); len(got) > 0 || counted(t, metrics.RepackSearches.WithLabelValues(metrics.RepackOutdated)) != outdated+1 {
		t.Errorf("%v are being closed: %q", got, w.messages())
	}
	w.expectUntouched("a")
}

// A search that has found nothing is not repeated while nothing changes.
func TestASearchInVainIsNotRepeated(t *testing.T) {
	w := spread(t, disruption.RepackOptions{Enabled: true, MinSavingsPerMove: 100}, "a")
	nothing := func() float64 { return counted(t, metrics.RepackSearches.WithLabelValues(metrics.RepackNothing)) }
	first := nothing()
	for range 3 {
		w.pass()
	}
	if got := nothing() - first; got != 1 {
		t.Errorf("%g searches, want one", got)
	}
	w.clock.Step(time.Second)
	w.cluster.MarkUnconsolidated()
	w.pass()
	if got := nothing() - first; got != 2 {
		t.Errorf("%g searches after a change, want two", got)
	}
}

// Spot machines are taken as such, so that none is launched on demand at another price; spot nodes are not replaced by spot.
func TestRepackingToSpot(t *testing.T) {
	for name, test := range map[string]struct {
		node   string
		closes int
	}{
		"from on demand": {karpv1.CapacityTypeOnDemand, 1}, "from spot": {karpv1.CapacityTypeSpot, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := spread(t, repacks)
			w.cloud.InstanceTypes = []*karpcloud.InstanceType{
				sized("huge", "4", 1, test.node), sized("small", "2", 0.2, karpv1.CapacityTypeSpot, karpv1.CapacityTypeOnDemand),
			}
			w.cloud.InstanceTypes[1].Offerings[1].Price = 0.6
			w.nodeOf("a", "huge", test.node)
			w.four("a", func(*corev1.Pod) {})
			w.pass()
			if got := w.disrupted(); len(got) != test.closes {
				t.Fatalf("%v are being closed: %q", got, w.messages())
			}
			for opened := range w.replacements() {
				if !slices.ContainsFunc(w.claim(opened).Spec.Requirements, func(r karpv1.NodeSelectorRequirementWithMinValues) bool {
					return r.Key == karpv1.CapacityTypeLabelKey && slices.Equal(r.Values, []string{karpv1.CapacityTypeSpot})
				}) {
					t.Errorf("%s may be on demand, at a higher price", opened)
				}
			}
		})
	}
}

// counted is the value of a counter.
func counted(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	m := &dto.Metric{}
	if err := c.Write(m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// lives has a pod end after a while.
func (w *world) lives(d time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.ActiveDeadlineSeconds = ptr.To(int64(d.Seconds()))
		p.Status.StartTime = ptr.To(metav1.NewTime(w.clock.Now()))
	}
}

// four are the pods of a node.
func (w *world) four(node string, edit func(*corev1.Pod)) {
	w.Helper()
	for _, pod := range []string{"1", "2", "3", "4"} {
		w.heavy(node+"-"+pod, node, edit)
	}
}

// Of two nodes one saves much for six minutes and the other a little all day. Each has to pay for its own moves.
func TestEachNodePaysForItsMoves(t *testing.T) {
	w := spread(t, disruption.RepackOptions{Enabled: true, MinSavingsPerMove: 0.5})
	w.cloud.InstanceTypes = append(w.cloud.InstanceTypes, sized("dear", "4", 2.4, karpv1.CapacityTypeOnDemand), sized("mild", "4", 0.6, karpv1.CapacityTypeOnDemand))
	w.cloud.InstanceTypes = w.cloud.InstanceTypes[1:] // mild is what single-node consolidation would replace by
	w.node("short", "dear")
	w.four("short", w.lives(6*time.Minute))
	w.node("long", "mild")
	w.four("long", func(*corev1.Pod) {})
	w.heavyOn("short", nil)
	got := w.repacked(t)
	if !slices.Equal(got, []string{"long"}) {
		t.Errorf("%v are repacked, want long: %q", got, w.messages())
	}
}

// repacked are the nodes that repacking alone would close.
func (w *world) repacked(t *testing.T) []string {
	t.Helper()
	method := disruption.NewRepacking(w.dependencies)
	candidates, err := karpdisruption.GetCandidates(w.ctx, w.cluster, w.client, w.events, w.clock, w.cloud, method.ShouldDisrupt, method.Class(), w.queue)
	w.must(err)
	budgets, err := karpdisruption.BuildDisruptionBudgetMapping(w.ctx, w.cluster, w.clock, w.client, w.cloud, w.events, method.Reason())
	w.must(err)
	done := make(chan []karpdisruption.Command)
	go func() {
		commands, err := method.ComputeCommands(w.ctx, budgets, candidates...)
		if err != nil {
			t.Error(err)
		}
		done <- commands
	}()
	for {
		select {
		case commands := <-done:
			var names []string
			for _, c := range commands {
				names = append(names, c.SourceNodeNames()...)
			}
			slices.Sort(names)
			return names
		case <-time.After(time.Millisecond):
			if w.clock.HasWaiters() {
				w.clock.Step(20 * time.Second)
			}
		}
	}
}

// A node whose pods find no place anywhere is the first by its price, and keeps no other from being repacked.
func TestANodeThatCannotBeClosedKeepsNoOther(t *testing.T) {
	w := spread(t, repacks, "a")
	w.cloud.InstanceTypes = append(w.cloud.InstanceTypes, sized("gone", "4", 5, karpv1.CapacityTypeOnDemand))
	w.cloud.InstanceTypes[2].Offerings[0].Available = false
	w.node("first", "gone")
	w.heavy("tied", "first", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelInstanceTypeStable: "gone"} })
	w.setBudget("1")
	w.pass()
	if got := w.disrupted(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("%v are being closed, want a: %q", got, w.messages())
	}
}

// The NodePool buys on demand alone. What spot costs is of no account.
func TestPricesAreThoseThatTheNodePoolPays(t *testing.T) {
	w := spread(t, repacks, "a")
	for i, spot := range []float64{0.4, 0.05} {
		cheap := sized("", "4", spot, karpv1.CapacityTypeSpot).Offerings[0]
		w.cloud.InstanceTypes[i].Offerings = append(w.cloud.InstanceTypes[i].Offerings, cheap)
	}
	w.require(karpv1.NodeSelectorRequirementWithMinValues{Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{karpv1.CapacityTypeOnDemand}})
	w.pass()
	if got, opened := w.disrupted(), w.replacements(); !slices.Equal(got, []string{"a"}) || len(opened) != 2 {
		t.Errorf("%v are being closed for %v, want a for two: %q", got, opened, w.messages())
	}
}

// One machine is reserved at a low price. The others of a plan cost what they cost on demand, at which two nodes are not
// worth closing and one is.
func TestAReservationIsCountedOnce(t *testing.T) {
	w := spread(t, repacks)
	w.ctx = options.ToContext(w.ctx, karptest.Options(karptest.OptionsFields{FeatureGates: karptest.FeatureGates{ReservedCapacity: ptr.To(true)}}))
	small := sized("small", "2", 0.7, karpv1.CapacityTypeOnDemand)
	small.Offerings = append(small.Offerings, &karpcloud.Offering{Available: true, Price: 0.01, ReservationCapacity: 1, Requirements: labels(map[string]string{
		karpv1.CapacityTypeLabelKey: karpv1.CapacityTypeReserved, corev1.LabelTopologyZone: "test-zone-1", karpcloud.ReservationIDLabel: "r-1",
	})})
	small = fake.NewInstanceType("small", fake.WithResources(small.Capacity), fake.WithOfferings(*small.Offerings[0], *small.Offerings[1]))
	w.cloud.InstanceTypes[1] = small
	w.restart()
	for _, node := range []string{"a", "b"} {
		w.node(node, "huge")
		w.four(node, func(*corev1.Pod) {})
	}
	if got := w.repacked(t); len(got) != 1 {
		t.Errorf("%v are repacked, want one: %q", got, w.messages())
	}
}

// The pods spread over two zones, of which one has no small machine. The node there stays.
func TestARepackKeepsPodsSpread(t *testing.T) {
	w := spread(t, repacks)
	huge := w.cloud.InstanceTypes[0]
	w.cloud.InstanceTypes[0] = fake.NewInstanceType("huge", fake.WithResources(huge.Capacity), fake.WithOfferings(*huge.Offerings[0], karpcloud.Offering{
		Available: true, Price: 1, Requirements: labels(map[string]string{
			karpv1.CapacityTypeLabelKey: karpv1.CapacityTypeOnDemand, corev1.LabelTopologyZone: "test-zone-2",
		}),
	}))
	spread := func(p *corev1.Pod) {
		p.Labels["spread"] = "web"
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"spread": "web"}},
		}}
	}
	w.node("a", "huge")
	w.four("a", spread)
	w.node("b", "huge")
	w.relabel("b", corev1.LabelTopologyZone, "test-zone-2")
	w.four("b", spread)
	if got := w.repacked(t); !slices.Equal(got, []string{"a"}) {
		t.Errorf("%v are repacked, want a: %q", got, w.messages())
	}
}

// relabel changes a label of a node and its NodeClaim.
func (w *world) relabel(node, label, value string) {
	w.Helper()
	n, claim := w.live(node), w.claim(node)
	n.Labels[label], claim.Labels[label] = value, value
	w.must(w.client.Update(w.ctx, n))
	w.must(w.client.Update(w.ctx, claim))
	w.sync()
}

// All machines serve when something comes to one of the nodes that speaks against closing it: none is closed.
func TestNodesThatAreRepackedGoTogether(t *testing.T) {
	for reason, come := range map[string]func(w *world){
		disruption.ReasonHigh: func(w *world) {
			w.node("beside", "edge", statetest.Cores(1)...)
			w.pod("control", "b", 10)
		},
		disruption.ReasonActionInFlight: func(w *world) { w.submit("replace-1", "b") },
	} {
		t.Run(reason, func(t *testing.T) {
			w := spread(t, repacks, "a", "b")
			w.cloud.InstanceTypes = append(w.cloud.InstanceTypes, machine("edge", 9, statetest.Cores(1)...))
			w.pass()
			opened := w.replacements()
			if len(opened) != 4 {
				t.Fatalf("opens %v, want four", opened)
			}
			for name := range opened {
				w.join(name)
			}
			come(w)
			w.carry("a")
			for _, node := range []string{"a", "b"} {
				if claim := w.claim(node); claim.DeletionTimestamp != nil {
					t.Errorf("%s is deleted", node)
				}
			}
			w.expectHeld(map[string]float64{reason: 2})
		})
	}
}

// One of the nodes is being closed already, and its pods are on their way: they keep no other.
func TestANodeThatIsBeingClosedKeepsNoOther(t *testing.T) {
	w := spread(t, repacks, "a", "b")
	w.pass()
	for name := range w.replacements() {
		w.join(name)
	}
	w.must(w.client.Delete(w.ctx, w.claim("a")))
	w.submit("replace-1", "a") // as a migration of its pods would have it in hand
	w.carry("b")
	if claim := w.claim("b"); claim.DeletionTimestamp == nil {
		t.Errorf("b is kept: %q", w.messages())
	}
}
