package provisioning_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kwokapi "sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	karptest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/mainspring-rt/mainspring/charts"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
)

// crds installs Karpenter's and kwok's beside ours, once.
var crds = sync.OnceValue(func() error {
	p, err := apiserver.Shared()
	if err != nil {
		return err
	}
	manifests, err := charts.CRDs()
	if err != nil {
		return err
	}
	return p.ApplyCRDs(context.Background(), manifests...)
})

// site is a real API server on which the test plays kubelets and agents: a node "source" with pods on its only core,
// and the simulated cloud.
type site struct {
	testing.TB
	ctx       context.Context
	api       client.WithWatch
	clock     *clocktesting.FakeClock
	namespace string
	processes int
	// mute: the agents of new nodes say nothing. unheard: what agents say was not taken for a sign of life yet.
	mute, unheard bool
	// selector is the nodeSelector of pods that are made.
	selector map[string]string
	// requests for NodeClaims that were stored, by name.
	opened map[string]int
}

func newSite(t testing.TB, pools ...*karpv1.NodePool) *site {
	t.Helper()
	if err := crds(); err != nil {
		t.Fatal(err)
	}
	known, err := scheme()
	if err != nil {
		t.Fatal(err)
	}
	api := apiserver.Near(t, known)
	s := &site{
		TB: t, api: api, clock: clocktesting.NewFakeClock(time.Now().Truncate(time.Second)), opened: map[string]int{},
		ctx: options.ToContext(t.Context(), karptest.Options(karptest.OptionsFields{
			IgnoreDRARequests: ptr.To(false), FeatureGates: karptest.FeatureGates{CapacityBuffer: ptr.To(true)},
		})),
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "site-"}}
	s.create(namespace)
	s.namespace = namespace.Name
	t.Cleanup(s.leave)
	s.create(rtdra.DeviceClass(), &kwokapi.KWOKNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: kwokapi.KWOKNodeClassSpec{NodeRegistrationDelay: metav1.Duration{Duration: 2 * time.Second}}})
	s.pools(pools...)
	return s
}

// pools are ready NodePools.
func (s *site) pools(pools ...*karpv1.NodePool) {
	s.Helper()
	for _, pool := range pools {
		s.create(pool)
		pool.StatusConditions().SetTrue(karpv1.ConditionTypeValidationSucceeded)
		pool.StatusConditions().SetTrue(karpv1.ConditionTypeNodeClassReady)
		s.must(s.api.Status().Update(s.ctx, pool))
	}
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *site) create(objects ...client.Object) {
	s.Helper()
	for _, o := range objects {
		s.must(s.api.Create(s.ctx, o))
	}
}

// leave takes away what has no namespace, and what would be seen in the next test.
func (s *site) leave() {
	s.Helper()
	apiserver.Empty(s, s.api, &v1alpha1.RTActionList{}, &karpv1.NodeClaimList{}, &karpv1.NodePoolList{}, &corev1.NodeList{}, &corev1.PodList{}, &v1alpha1.RTNodeList{},
		&resourcev1.ResourceClaimList{}, &resourcev1.ResourceSliceList{}, &resourcev1.DeviceClassList{}, &kwokapi.KWOKNodeClassList{}, &v1alpha1.SimulatedFaultList{},
		&mcv1.McKubeList{}, &corev1.EventList{}, &autoscalingv1beta1.CapacityBufferList{})
}

// node is ready and has cores.
func (s *site) node(name string, cores int) *corev1.Node {
	s.Helper()
	n := statetest.Node(name, "")
	status := n.Status
	status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("20")}
	s.create(n)
	n.Status = status
	s.must(s.api.Status().Update(s.ctx, n))
	n.Spec.Taints = nil // as the node controller of a cluster does
	s.must(s.api.Update(s.ctx, n))
	s.agent(n, statetest.Cores(cores))
	return n
}

// agent publishes the cores of a node, and that it has measured.
func (s *site) agent(n *corev1.Node, cores []rt.Core) {
	s.Helper()
	slice := statetest.SliceOf(n, "simulated", cores...)
	slice.ObjectMeta = metav1.ObjectMeta{Name: "slice-" + string(n.UID), OwnerReferences: slice.OwnerReferences}
	s.create(slice)
	r := statetest.RTNode(n)
	r.UID = ""
	s.create(r)
	r.Status.Backend, r.Status.BudgetGranularityUs = "simulated", 100
	r.Status.HeartbeatTime = ptr.To(metav1.NewMicroTime(s.clock.Now()))
	s.must(s.api.Status().Update(s.ctx, r))
	if !s.unheard {
		s.hear(r)
	}
}

// hear has the agent of a node be taken for alive, as the loop over nodes does.
func (s *site) hear(r *v1alpha1.RTNode) {
	s.Helper()
	r.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionAgentAlive, Status: metav1.ConditionTrue, Reason: "Heartbeat", LastTransitionTime: metav1.NewTime(s.clock.Now()),
	}}
	s.must(s.api.Status().Update(s.ctx, r))
}

// run has a pod of one container run on the first core of a node, with a claim for so many of 100 ms.
func (s *site) run(name, node string, criticality mcv1.Criticality, budgetMs int64) v1alpha1.ActionPod {
	s.Helper()
	return s.runOn(name, node, 0, criticality, budgetMs)
}

func (s *site) runOn(name, node string, core int, criticality mcv1.Criticality, budgetMs int64) v1alpha1.ActionPod {
	s.Helper()
	m := statetest.McKube(s.namespace, name, name, criticality, budgetMs, budgetMs)
	m.UID = ""
	s.create(m)
	p := statetest.On(statetest.WithClaim(statetest.Pod(s.namespace, name, "", "app"), "app", name+"-claim"), node)
	p.Spec.Containers[0].Image = "none"
	p.Spec.NodeSelector = s.selector
	status := p.Status
	s.create(p)
	p.Status = status
	s.must(s.api.Status().Update(s.ctx, p))
	server, err := rtdra.ServerOf(m, p.UID, "app")
	s.must(err)
	s.claim(m, statetest.Claim(p, p.Name+"-claim", "app", node, core, server.Charge(100)))
	return v1alpha1.ActionPod{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

func (s *site) claim(m *mcv1.McKube, claim *resourcev1.ResourceClaim) {
	s.Helper()
	status := claim.Status
	status.Allocation.Devices.Results[0].ShareID = ptr.To(types.UID("aaaaaaaa-0000-4000-8000-000000000000"))
	claim.UID = ""
	var err error
	claim.Spec, err = rtdra.ClaimSpec(m, 100)
	s.must(err)
	s.create(claim)
	claim.Status = status
	s.must(s.api.Status().Update(s.ctx, claim))
}

// request asks for a node for pods of node "source".
func (s *site) request(pods ...v1alpha1.ActionPod) orchestration.Request {
	return orchestration.Request{
		Kind: rules.OpenNode, Reason: "RTPressure", Cause: "pressure/x/1", Node: "source", Pods: pods, Timeout: 2 * time.Minute,
		Beneficiary: v1alpha1.ActionBeneficiary{Kind: "Pod", Namespace: pods[0].Namespace, Name: pods[0].Name, UID: pods[0].UID, Criticality: "High"},
	}
}

// claims are the NodeClaims that are there.
func (s *site) claims() []karpv1.NodeClaim {
	s.Helper()
	list := &karpv1.NodeClaimList{}
	s.must(s.api.List(s.ctx, list))
	return list.Items
}

func (s *site) action(name string) *v1alpha1.RTAction {
	s.Helper()
	o := &v1alpha1.RTAction{}
	s.must(s.api.Get(s.ctx, client.ObjectKey{Name: name}, o))
	return o
}

// ends expects an action to be over so, with a message that says something.
func (s *site) ends(name string, phase rules.Phase, says string) {
	s.Helper()
	o := s.action(name)
	if rules.Phase(o.Status.Phase) != phase || !strings.Contains(o.Status.Message, says) {
		s.Errorf("action is %s: %s (%s), want %s: %s", o.Status.Phase, o.Status.Message, o.Status.LastError, phase, says)
	}
}

// machineCores are the cores of a machine of the catalogue.
func (s *site) machineCores(name string) []rt.Core {
	s.Helper()
	known, err := catalogue.Parse("machines", []byte(machines))
	s.must(err)
	m, ok := known.Lookup(name)
	if !ok || m.RT == nil {
		return nil
	}
	return m.RT.Cores()
}

func (s *site) String() string { return fmt.Sprintf("site in namespace %s", s.namespace) }

// once expects that no NodeClaim was asked for twice, and one at most.
func (s *site) once() {
	s.Helper()
	for name, n := range s.opened {
		if n != 1 || len(s.opened) > 1 {
			s.Errorf("NodeClaim %s was made %d times, of %d", name, n, len(s.opened))
		}
	}
}

// claimed is the name of the NodeClaim that was asked for.
func claimed(s *site) string {
	for name := range s.opened {
		return name
	}
	return ""
}

func quantity(text string) *resource.Quantity { return ptr.To(resource.MustParse(text)) }
