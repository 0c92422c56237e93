package ladder_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
)

// stage is an API server with nodes under pressure. Tests play scheduler, kubelets, agents and the migration executor.
type stage struct {
	testing.TB
	api       client.WithWatch
	clock     *clocktesting.FakeClock
	told      *told
	options   ladder.Options
	namespace string
	nodes     []string
	processes int
	// silent: agents report nothing, and the controller knows.
	silent bool

	// overruns of containers, by pod, while overruns says that they go on.
	overrun func(pod string, others int64) int64
	misses  map[string]int64
	counted map[string]int64
	// unable are kinds without an executor; conduct is the result of actions of a kind instead.
	unable  map[rules.Kind]bool
	conduct map[rules.Kind]rules.Result
	// fixed is how many nodes every NodePool has for good; nil: as many as are needed.
	fixed *int64
	// lost are pods with an unknown passage to other nodes.
	lost []string
	// policy decides on each write; nil: nothing is forbidden.
	policy func(client.Object) error
	// notes are the points at which the controller recorded on a McKube that a pod leaves its node.
	notes []int
	// done are the completed operations with their pods, in order; episodes are the beginnings that the test saw.
	done     []string
	episodes map[string]bool
}

func newStage(t testing.TB) *stage {
	t.Helper()
	api := apiserver.Near(t, apiserver.Scheme(t))
	s := &stage{
		TB: t, api: api, clock: clocktesting.NewFakeClock(time.Now().Truncate(time.Second)), told: &told{}, misses: map[string]int64{},
		counted: map[string]int64{}, unable: map[rules.Kind]bool{}, conduct: map[rules.Kind]rules.Result{}, episodes: map[string]bool{},
		overrun: func(string, int64) int64 { return 0 },
		options: ladder.Options{
			Overruns: 5, Window: 5 * time.Second, Delay: 2 * time.Second, Settle: 3 * time.Second, Patience: 8 * time.Second,
			NodeTimeout: 20 * time.Minute, Calm: 4 * time.Second, RecoveryInterval: 2 * time.Second,
		},
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "ladder-"}}
	s.must(api.Create(t.Context(), namespace))
	s.namespace = namespace.Name
	t.Cleanup(s.leave)
	return s
}

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// leave takes away what has no namespace, and what the cache of the next test would see.
func (s *stage) leave() {
	s.Helper()
	apiserver.Empty(s, s.api, &v1alpha1.RTActionList{}, &corev1.PodList{}, &mcv1.McKubeList{}, &resourcev1.ResourceClaimList{},
		&resourcev1.ResourceSliceList{}, &v1alpha1.RTNodeList{}, &corev1.NodeList{})
}

// told records Events.
type told struct{ list []karpenterevents.Event }

func (r *told) Publish(list ...karpenterevents.Event) { r.list = append(r.list, list...) }

// chain are the reasons of the Events on an object of a kind and name, equal neighbours once.
func (r *told) chain(on client.Object) []string {
	var out []string
	for _, e := range r.list {
		if o := e.InvolvedObject.(client.Object); o.GetName() == on.GetName() && fmt.Sprintf("%T", o) == fmt.Sprintf("%T", on) {
			out = append(out, e.Reason)
		}
	}
	return slices.Compact(out)
}

// node makes a Node whose agent offers cores.
func (s *stage) node(name string, cores int) {
	s.Helper()
	n := statetest.Node(s.namespace+"-"+name, "")
	n.CreationTimestamp = metav1.Time{}
	n.Labels["karpenter.sh/nodepool"] = "edge"
	status := n.Status
	status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("100")}
	s.must(s.api.Create(s.Context(), n))
	n.Spec.Taints = nil // no other controller removes the taints that the API server puts on new nodes
	s.must(s.api.Update(s.Context(), n))
	n.Status = status
	s.must(s.api.Status().Update(s.Context(), n))
	slice := statetest.Slice(n, statetest.Cores(cores)...)
	slice.ObjectMeta = metav1.ObjectMeta{Name: n.Name, OwnerReferences: slice.OwnerReferences}
	s.must(s.api.Create(s.Context(), slice))
	r := statetest.RTNode(n)
	r.ObjectMeta = metav1.ObjectMeta{Name: n.Name, OwnerReferences: r.OwnerReferences}
	s.must(s.api.Create(s.Context(), r))
	s.nodes = append(s.nodes, n.Name)
}

// run makes a pod of one container run on a core with a claim there. Its replacement has its name, as in a StatefulSet.
func (s *stage) run(name, node string, criticality mcv1.Criticality, budgetMs int64, core int) *corev1.Pod {
	s.Helper()
	m := statetest.McKube(s.namespace, name, name, criticality, budgetMs, budgetMs)
	m.ObjectMeta = metav1.ObjectMeta{Namespace: s.namespace, Name: name}
	s.must(client.IgnoreAlreadyExists(s.api.Create(s.Context(), m)))
	p := statetest.On(statetest.WithClaim(statetest.Pod(s.namespace, name, "", "app"), "app", name), s.namespace+"-"+node)
	p.ObjectMeta = metav1.ObjectMeta{Namespace: s.namespace, Name: name, Labels: p.Labels}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "set", UID: "set", Controller: ptr.To(true)}}
	p.Spec.Containers[0].Image, p.Spec.TerminationGracePeriodSeconds = "none", ptr.To(int64(0))
	status := p.Status
	s.must(s.api.Create(s.Context(), p))
	p.Status = status
	s.must(s.api.Status().Update(s.Context(), p))
	s.claim(p, core, int64(ppm(budgetMs)))
	s.place(p, string(criticality), budgetMs, core)
	return p
}

func (s *stage) claim(p *corev1.Pod, core int, amount int64) {
	s.Helper()
	claim := statetest.Claim(p, p.Name, "app", p.Spec.NodeName, core, 0)
	claim.ObjectMeta = metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, Annotations: claim.Annotations, OwnerReferences: claim.OwnerReferences}
	result := &claim.Status.Allocation.Devices.Results[0]
	result.ShareID = ptr.To(types.UID("aaaaaaaa-0000-4000-8000-000000000000"))
	result.ConsumedCapacity[v1alpha1.CapacityRTBandwidth] = *resource.NewQuantity(amount, resource.DecimalSI)
	claim.Spec.Devices.Requests[0].Exactly.AllocationMode, claim.Spec.Devices.Requests[0].Exactly.Count = resourcev1.DeviceAllocationModeExactCount, 1
	status := claim.Status
	s.must(client.IgnoreNotFound(s.api.Delete(s.Context(), claim.DeepCopy())))
	s.must(s.api.Create(s.Context(), claim))
	claim.Status = status
	s.must(s.api.Status().Update(s.Context(), claim))
}

// place is what the loop over nodes writes for a container.
func (s *stage) place(p *corev1.Pod, criticality string, budgetMs int64, core int) {
	s.spec(p.Spec.NodeName, func(r *v1alpha1.RTNode) {
		r.Spec.Servers = append(r.Spec.Servers, v1alpha1.RTServer{
			PodUID: p.UID, Namespace: p.Namespace, Pod: p.Name, Container: "app", Criticality: criticality, PeriodUs: 100_000, DeadlineUs: 100_000,
			BudgetLowUs: budgetMs * 1000, BudgetHighUs: budgetMs * 1000, Cores: []int32{int32(core)},
		})
	})
}

// spec changes the RTNode's spec of a node.
func (s *stage) spec(node string, change func(*v1alpha1.RTNode)) {
	s.Helper()
	r := s.rtNode(node)
	change(r)
	s.must(s.api.Update(s.Context(), r))
}

func (s *stage) rtNode(name string) *v1alpha1.RTNode {
	s.Helper()
	r := &v1alpha1.RTNode{}
	s.must(s.api.Get(s.Context(), client.ObjectKey{Name: name}, r))
	return r
}

// live plays all other components for a while: deleted pods leave their nodes, and agents report their containers.
func (s *stage) live() {
	s.Helper()
	pods := &corev1.PodList{}
	s.must(s.api.List(s.Context(), pods, client.InNamespace(s.namespace)))
	known := map[types.UID]bool{}
	for _, p := range pods.Items {
		known[p.UID] = true
	}
	list := &v1alpha1.RTNodeList{}
	s.must(s.api.List(s.Context(), list))
	for i := range list.Items {
		r := &list.Items[i]
		gone := slices.DeleteFunc(slices.Clone(r.Spec.Servers), func(e v1alpha1.RTServer) bool { return known[e.PodUID] })
		for _, e := range gone {
			claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: e.Pod}}
			s.must(client.IgnoreNotFound(s.api.Delete(s.Context(), claim)))
		}
		if len(gone) > 0 {
			r.Spec.Servers = slices.DeleteFunc(r.Spec.Servers, func(e v1alpha1.RTServer) bool { return !known[e.PodUID] })
			s.must(s.api.Update(s.Context(), r))
		}
		s.report(r)
	}
}

// report is the agent's report: it has applied the spec, and counts events. It does not repeat an unchanged report.
func (s *stage) report(r *v1alpha1.RTNode) {
	s.Helper()
	before, heard := r.Status.DeepCopy(), metav1.ConditionTrue
	if s.silent {
		heard = metav1.ConditionFalse
	}
	if !s.silent {
		r.Status.Servers = nil
	}
	for _, e := range r.Spec.Servers {
		if s.silent {
			break
		}
		others := int64(0)
		for _, o := range r.Spec.Servers {
			if o.Cores[0] == e.Cores[0] && o.PodUID != e.PodUID {
				others += o.BudgetHighUs / 1000
			}
		}
		key := e.Pod + string(e.PodUID)
		s.counted[key] += s.overrun(e.Pod, others)
		r.Status.Servers = append(r.Status.Servers, v1alpha1.RTServerStatus{
			PodUID: e.PodUID, Container: "app", BudgetUs: e.BudgetHighUs, PeriodUs: e.PeriodUs, Cores: e.Cores, Level: v1alpha1.LevelHigh,
			Overruns: s.counted[key], Misses: s.misses[e.Pod],
		})
	}
	meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAgentAlive, Status: heard, Reason: "Heard", LastTransitionTime: metav1.NewTime(start)})
	if !apiequality.Semantic.DeepEqual(before, &r.Status) {
		s.must(s.api.Status().Update(s.Context(), r))
	}
}

// pressure is "stage" of a node, with "+taint" while it has the taint; empty for none.
func (s *stage) pressure(name string) string {
	s.Helper()
	name = s.namespace + "-" + name
	out := ""
	if c := meta.FindStatusCondition(s.rtNode(name).Status.Conditions, v1alpha1.ConditionRTPressure); c != nil {
		out = c.Reason
		if c.Status == metav1.ConditionTrue {
			s.episodes[name+c.LastTransitionTime.String()] = true
		}
	}
	n := &corev1.Node{}
	s.must(s.api.Get(s.Context(), client.ObjectKey{Name: name}, n))
	if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == mcv1.TaintPressure }) {
		out += "+taint"
	}
	return out
}

// actions are "Kind Reason Phase pods" of every action, in the order in which they were asked for.
func (s *stage) actions() []string {
	s.Helper()
	list := &v1alpha1.RTActionList{}
	s.must(s.api.List(s.Context(), list))
	slices.SortFunc(list.Items, func(a, b v1alpha1.RTAction) int { return a.Spec.Since.Compare(b.Spec.Since.Time) })
	var out []string
	for _, o := range list.Items {
		words := []string{string(o.Spec.Kind), o.Spec.Reason, string(o.Status.Phase)}
		for _, p := range o.Spec.Pods {
			words = append(words, p.Name)
		}
		out = append(out, strings.Join(words, " "))
	}
	return out
}

// objects are everything that caches know.
func (s *stage) objects(into func(client.Object)) {
	s.Helper()
	for _, list := range []client.ObjectList{
		&corev1.NodeList{}, &resourcev1.ResourceSliceList{}, &corev1.PodList{}, &mcv1.McKubeList{}, &resourcev1.ResourceClaimList{}, &v1alpha1.RTNodeList{},
	} {
		s.must(s.api.List(s.Context(), list))
		s.must(meta.EachListItem(list, func(o runtime.Object) error {
			into(o.(client.Object))
			return nil
		}))
	}
}
