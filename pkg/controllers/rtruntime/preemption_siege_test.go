package rtruntime_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	karptest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
	"github.com/mainspring-rt/mainspring/pkg/test/mortal"
)

// preemptionDelay of the controllers under test.
const preemptionDelay = 5 * time.Second

// siege is a namespace of an API server in which tests play scheduler and kubelets, and watch what a
// controller writes.
type siege struct {
	testing.TB
	mortal.Life
	// API is the server as it is; seen is how controllers see it.
	API, seen client.WithWatch
	namespace string
	clock     *clocktesting.FakeClock
	told      *told
	// inFlight: a node may still come; planned: one does.
	inFlight, planned bool
	// evicted are the pods that were evicted, in order; before each, watch is called.
	evicted []string
	watch   func()
	// stale is what the controller's cache still shows instead of the server's pod.
	stale *corev1.Pod
}

func newSiege(t testing.TB, namespace string) *siege {
	t.Helper()
	api := apiserver.Near(t, apiserver.Scheme(t))
	s := &siege{TB: t, API: api, namespace: namespace, clock: clocktesting.NewFakeClock(time.Now().Truncate(time.Second)), told: &told{}}
	s.seen = interceptor.NewClient(api, interceptor.Funcs{Get: s.get, SubResourceCreate: s.evict})
	s.must(api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	t.Cleanup(func() { empty(t, api) })
	return s
}

// Context has Karpenter's options, as that of the manager.
func (s *siege) Context() context.Context {
	return options.ToContext(s.TB.Context(), karptest.Options())
}

func (s *siege) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// mine are the objects of the namespace, and those without one whose names begin with its name.
func (s *siege) mine(o client.Object) bool {
	return o.GetNamespace() == s.namespace || o.GetNamespace() == "" && strings.HasPrefix(o.GetName(), s.namespace+"-")
}

func (s *siege) get(ctx context.Context, api client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if pod, ok := obj.(*corev1.Pod); ok && s.stale != nil && key == client.ObjectKeyFromObject(s.stale) {
		s.stale.DeepCopyInto(pod)
		return nil
	}
	return api.Get(ctx, key, obj, opts...)
}

func (s *siege) evict(ctx context.Context, api client.Client, resource string, obj, sub client.Object, opts ...client.SubResourceCreateOption) error {
	o := &client.SubResourceCreateOptions{}
	o.ApplyOptions(opts)
	if len(o.DryRun) > 0 {
		return api.SubResource(resource).Create(ctx, obj, sub, opts...)
	}
	if sub.GetAnnotations()[v1alpha1.AnnotationAction] == "" {
		s.Error("the gate would take the eviction for somebody else's, and migrate the pod")
	}
	if s.watch != nil {
		s.watch()
	}
	err := api.SubResource(resource).Create(ctx, obj, sub, opts...)
	if err == nil {
		s.evicted = append(s.evicted, obj.GetName())
	}
	return err
}

// node offers cores; its name begins with the namespace.
func (s *siege) node(name string, cores int) {
	s.Helper()
	n := statetest.Node(s.namespace+"-"+name, "")
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourcePods: resource.MustParse("20")}
	status := n.Status
	s.must(s.API.Create(s.Context(), n))
	n.Spec.Taints = nil // not-ready, by an admission plugin
	s.must(s.API.Update(s.Context(), n))
	n.Status = status
	s.must(s.API.Status().Update(s.Context(), n))
	slice := statetest.Slice(n, statetest.Cores(cores)...)
	slice.UID = ""
	s.must(s.API.Create(s.Context(), slice))
}

// mckube gives the pod's container so many percent of a core.
func (s *siege) mckube(pod string, criticality mcv1.Criticality, percent int64) {
	s.Helper()
	m := statetest.McKube(s.namespace, pod, pod, criticality, percent, percent)
	m.UID = ""
	s.must(s.API.Create(s.Context(), m))
}

// run has a ready pod run on a core of a node.
func (s *siege) run(name, node string, criticality mcv1.Criticality, percent int64, core int) *corev1.Pod {
	s.Helper()
	p := s.shape(name)
	s.runs(p, node, criticality, percent, core)
	return p
}

// runs has a pod as it is shaped run on a core of a node.
func (s *siege) runs(p *corev1.Pod, node string, criticality mcv1.Criticality, percent int64, core int) {
	s.Helper()
	name := p.Name
	s.mckube(name, criticality, percent)
	statetest.On(p, s.namespace+"-"+node)
	p.Labels["app"] = name
	status := p.Status
	status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	s.must(s.API.Create(s.Context(), p))
	p.Status = status
	s.must(s.API.Status().Update(s.Context(), p))
	claim := statetest.Claim(p, name+"-claim", "app", p.Spec.NodeName, core, rt.PPM(percent*10_000+1_000))
	given := claim.Status
	given.Allocation.Devices.Results[0].ShareID = ptr.To(types.UID("aaaaaaaa-0000-4000-8000-000000000000"))
	claim.UID = ""
	claim.Spec.Devices.Requests[0].Exactly.AllocationMode, claim.Spec.Devices.Requests[0].Exactly.Count = resourcev1.DeviceAllocationModeExactCount, 1
	s.must(s.API.Create(s.Context(), claim))
	claim.Status = given
	s.must(s.API.Status().Update(s.Context(), claim))
}

// label sets one of a node.
func (s *siege) label(node, key, value string) {
	s.Helper()
	n := &corev1.Node{}
	s.must(s.API.Get(s.Context(), client.ObjectKey{Name: s.namespace + "-" + node}, n))
	n.Labels[key] = value
	s.must(s.API.Update(s.Context(), n))
}

// shape is a pod with the webhook's claim.
func (s *siege) shape(name string) *corev1.Pod {
	p := statetest.WithClaim(statetest.Pod(s.namespace, name, "", "app"), "app", name+"-claim")
	p.Spec.Containers[0].Image = "none"
	return p
}

// wait has a pod wait that the scheduler finds no node for, for 10 s.
func (s *siege) wait(name string, criticality mcv1.Criticality, percent int64) *corev1.Pod {
	s.Helper()
	s.mckube(name, criticality, percent)
	p := s.shape(name)
	s.must(s.API.Create(s.Context(), p))
	unschedulable(p, s.clock.Now().Add(-10*time.Second))
	s.must(s.API.Status().Update(s.Context(), p))
	return p
}

// budget is a PodDisruptionBudget for pods of a label app, as the disruption controller would leave it.
func (s *siege) budget(name string, allowed int32, apps ...string) *policyv1.PodDisruptionBudget {
	s.Helper()
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}, Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: ptr.To(intOrString(1)),
		Selector:     &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: apps}}},
	}}
	s.must(s.API.Create(s.Context(), b))
	s.allow(b, allowed)
	return b
}

func (s *siege) allow(b *policyv1.PodDisruptionBudget, allowed int32) {
	s.Helper()
	b.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: b.Generation, DisruptionsAllowed: allowed, CurrentHealthy: 1 + allowed, DesiredHealthy: 1, ExpectedPods: 1 + allowed,
	}
	s.must(s.API.Status().Update(s.Context(), b))
}

// pod as the server has it; nil when it is gone.
func (s *siege) pod(name string) *corev1.Pod {
	s.Helper()
	p := &corev1.Pod{}
	err := s.API.Get(s.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, p)
	if apierrors.IsNotFound(err) {
		return nil
	}
	s.must(err)
	return p
}

// plan is that of the pod; nil for none.
func (s *siege) plan(pod string) *state.Preemption {
	s.Helper()
	text := s.pod(pod).Annotations[mcv1.AnnotationPreempting]
	if text == "" {
		return nil
	}
	plan, err := state.ParsePreemption(text)
	s.must(err)
	return &plan
}

// endPods plays the kubelets: pods that are being deleted go, and their claims with them.
func (s *siege) endPods() {
	s.Helper()
	pods := &corev1.PodList{}
	s.must(s.API.List(s.Context(), pods, client.InNamespace(s.namespace)))
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.DeletionTimestamp == nil {
			continue
		}
		s.must(s.API.Delete(s.Context(), p, client.GracePeriodSeconds(0)))
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: p.Name + "-claim"}}
		s.must(client.IgnoreNotFound(s.API.Delete(s.Context(), claim)))
	}
}

// schedule plays the scheduler: the pod is bound when a core takes it.
func (s *siege) schedule(name string) {
	s.Helper()
	b := s.start(preempting)
	view, ok := b.store.Snapshot().PodNamed(s.namespace, name)
	if !ok || view.NodeName != "" {
		return
	}
	core, gates := b.store.Snapshot().BestCore(view.Governed[0].Server)
	if len(gates) == 0 {
		s.bind(name, core.Node)
	}
}

func (s *siege) bind(name, node string) {
	s.Helper()
	s.must(s.API.SubResource("binding").Create(s.Context(), s.pod(name), &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node}}))
}

// running are the names of the pods that are not being deleted.
func (s *siege) running() []string {
	s.Helper()
	pods := &corev1.PodList{}
	s.must(s.API.List(s.Context(), pods, client.InNamespace(s.namespace)))
	var out []string
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil {
			out = append(out, p.Name)
		}
	}
	slices.Sort(out)
	return out
}
