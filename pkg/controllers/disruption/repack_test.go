package disruption_test

import (
	"context"
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
	"sigs.k8s.io/karpenter/pkg/events"

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
		for _, pod := range []string{"1", "2", "3", "4"} {
			w.heavy(node+"-"+pod, node, func(*corev1.Pod) {})
		}
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
	if got := counted(t, metrics.RepackSavings) - saved; got < 1.19 || got > 1.21 {
		t.Errorf("it says that it saves %g USD per hour, want 1.2", got)
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
	w.cloud.InstanceTypes = w.cloud.InstanceTypes[:1] // it would begin again
	w.sync()
	w.pass()
	for _, node := range []string{"a", "b"} {
		w.expectUntouched(node)
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
		"it is off":                                  {disruption.RepackOptions{}, func(*world) {}},
		"each move would have to save more":          {disruption.RepackOptions{Enabled: true, MinSavingsPerMove: 3.7}, func(*world) {}}, // 0.6 USD/h, 24 h, 4 pods
		"the price of the node is not known":         {repacks, func(w *world) { w.cloud.InstanceTypes[0].Offerings = nil }},
		"a CostPolicy of the pods asks for more":     {repacks, func(w *world) { w.costPolicy("app", "a-1", 14.4) }}, // 0.6 USD/h for 24 h
		"a CostPolicy cannot be read":                {repacks, func(w *world) { w.costPolicy("app", "not/a/label/value", 0) }},
		"the budgets allow none":                     {repacks, func(w *world) { w.setBudget("0") }},
		"a pod must not be disrupted":                {repacks, func(w *world) { w.heavyOn("a", map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}) }},
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
			for _, name := range []string{"1", "2", "3", "4"} {
				w.heavy(name, "a", func(p *corev1.Pod) {
					p.Spec.ActiveDeadlineSeconds = ptr.To(int64(test.lives.Seconds()))
					p.Status.StartTime = ptr.To(metav1.NewTime(w.clock.Now()))
				})
			}
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
			for _, pod := range []string{"1", "2", "3", "4"} {
				w.heavy("a-"+pod, "a", func(*corev1.Pod) {})
			}
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
