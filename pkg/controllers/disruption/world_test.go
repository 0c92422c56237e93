package disruption_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"
	"unique"

	"github.com/awslabs/operatorpkg/singleton"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	karpdisruption "sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	karpstate "sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/state/cost"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"
	karptest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/mainspring-rt/mainspring/charts"
	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/pricecap"
	"github.com/mainspring-rt/mainspring/pkg/controllers/disruption"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
	"github.com/mainspring-rt/mainspring/pkg/test/mortal"
)

// world is a cluster on a real API server with Karpenter's state, simulation and queue; machines are made of words.
type world struct {
	*testing.T
	ctx     context.Context
	client  client.WithWatch
	clock   *clocktesting.FakeClock
	cloud   *fake.CloudProvider
	events  *karptest.EventRecorder
	cluster *karpstate.Cluster
	queue   *karpdisruption.Queue
	store   *state.Store
	// starting: the store has not all that there is.
	starting bool
	trigger  *disruption.Trigger
	repack   disruption.RepackOptions
	pool     *karpv1.NodePool
	actions  actions
	devices  *deviceallocation.Controller
	known    map[string]bool // NodeClaims that there were
	loop     *disruption.Controller
	// reader is what executors ask.
	reader *meanwhile
	// dependencies of the loop.
	dependencies disruption.Dependencies
	// life of its processes; nil: none dies. process is the one that lives, or has died.
	life    *mortal.Life
	process *mortal.Process
}

// actions is an orchestration queue of whatever a test says.
type actions map[string]*v1alpha1.RTAction

// Ready is nil unless there is an entry for that.
func (a *actions) Ready() error {
	if _, starting := (*a)["starting"]; starting {
		return errors.New("the queue is not taken over")
	}
	return nil
}

func (a *actions) Running(kind rules.Kind) (out []*v1alpha1.RTAction) {
	for _, o := range *a {
		if rules.Kind(o.Spec.Kind) == kind && rules.Phase(o.Status.Phase).Holds() {
			out = append(out, o.DeepCopy())
		}
	}
	return out
}

func (a *actions) WaitingFor(reason string) (out []*v1alpha1.RTAction) {
	for _, o := range *a {
		if rules.Phase(o.Status.Phase) == rules.Waiting && o.Status.WaitingFor == reason {
			out = append(out, o.DeepCopy())
		}
	}
	return out
}

func (a *actions) Awaiting(reason string) []*v1alpha1.RTAction {
	out := a.WaitingFor(reason)
	for _, o := range *a {
		if rules.Phase(o.Status.Phase) == rules.Expired && o.Status.WaitingFor == reason {
			out = append(out, o.DeepCopy())
		}
	}
	return out
}

// connected is a client of the API server that the tests share, which has the CRDs that users install.
var connected = sync.OnceValues(func() (client.WithWatch, error) {
	plane, err := apiserver.Shared()
	if err != nil {
		return nil, err
	}
	crds, err := charts.CRDs()
	if err != nil {
		return nil, err
	}
	if err := plane.ApplyCRDs(context.Background(), crds...); err != nil {
		return nil, err
	}
	if err := kcloudv1alpha1.AddToScheme(clientgoscheme.Scheme); err != nil {
		return nil, err
	}
	config := plane.RESTConfig()
	config.QPS, config.Burst = 1000, 1000
	return client.NewWithWatch(config, client.Options{Scheme: clientgoscheme.Scheme})
})

// begin makes a cluster with a NodePool whose machines are "plain", of 4 CPUs, and "edge", of 4 CPUs and so many
// real-time cores, at a higher price.
func begin(t *testing.T, cores ...rt.Core) *world {
	t.Helper()
	c, err := connected()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		T: t, client: c, clock: clocktesting.NewFakeClock(time.Now()), cloud: fake.NewCloudProvider(), events: karptest.NewEventRecorder(),
		trigger: disruption.NewTrigger(), actions: actions{},
	}
	w.ctx = options.ToContext(log.IntoContext(t.Context(), logr.Discard()), karptest.Options())
	w.cloud.Reset()
	w.cloud.InstanceTypes = []*karpcloud.InstanceType{machine("plain", 0.1), machine("edge", 0.2, cores...)}
	t.Cleanup(w.clean)
	w.pool = karptest.NodePool(karpv1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: "general"},
		Spec: karpv1.NodePoolSpec{Disruption: karpv1.Disruption{
			ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized,
			ConsolidateAfter:    karpv1.MustParseNillableDuration("Never"),
			Budgets:             []karpv1.Budget{{Nodes: "100%"}},
		}},
	})
	w.create(w.pool)
	w.restart()
	return w
}

// machine is an instance type with one on-demand offering.
func machine(name string, price float64, cores ...rt.Core) *karpcloud.InstanceType {
	template := karpcloud.ResourceSliceTemplate{Driver: unique.Make(v1alpha1.DriverCPU), Pool: karpcloud.ResourcePool{Name: unique.Make("cores-" + name)}}
	for _, core := range cores {
		d := rtdra.Device(core, "simulated")
		template.Devices = append(template.Devices, karpcloud.Device{Name: unique.Make(d.Name), Attributes: d.Attributes, Capacity: d.Capacity, AllowMultipleAllocations: true})
	}
	return fake.NewInstanceType(name, fake.WithResourceSliceTemplates(template), fake.WithOfferings(karpcloud.Offering{
		Available: true, Price: price,
		Requirements: labels(map[string]string{karpv1.CapacityTypeLabelKey: karpv1.CapacityTypeOnDemand, corev1.LabelTopologyZone: "test-zone-1"}),
	}))
}

// restart is a new process: only what the API server has, and the actions, are left.
func (w *world) restart() {
	w.Helper()
	own := w.client
	if w.life != nil {
		w.process = w.life.Process(w.client)
		own = w.process
	}
	w.known, w.reader = map[string]bool{}, &meanwhile{Reader: own}
	w.cluster = karpstate.NewCluster(w.clock, w.client, w.cloud)
	w.devices = deviceallocation.NewController(w.client)
	provisioner := provisioning.NewProvisioner(own, w.events, pricecap.Decorate(w.cloud), w.cluster, w.clock, w.devices, virtualpods.NewVirtualPodCache(w.client))
	w.store = state.New(state.Options{})
	if !w.starting {
		w.store.Complete()
	}
	gate := disruption.NewGate(own, w.clock, w.store, func() disruption.Actions { return &w.actions })
	w.queue = gate.NewQueue(w.events, w.cluster, provisioner)
	w.dependencies = disruption.Dependencies{
		Clock: w.clock, Client: own, Reader: w.reader, CloudProvider: w.cloud, Recorder: w.events, Cluster: w.cluster, Provisioner: provisioner,
		Queue: w.queue, Gate: gate, Cost: cost.NewClusterCost(w.ctx, w.cloud, w.client), Store: w.store, Actions: &w.actions, Trigger: w.trigger, Repack: w.repack,
	}
	w.loop = disruption.NewController(w.ctx, w.dependencies)
	w.sync()
}

// died tells whether the process has.
func (w *world) died() bool { return w.process != nil && w.process.Dead() }

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// create stores an object with its status.
func (w *world) create(o client.Object) {
	w.Helper()
	wanted := o.DeepCopyObject().(client.Object)
	w.must(w.client.Create(w.ctx, o))
	wanted.SetResourceVersion(o.GetResourceVersion())
	wanted.SetUID(o.GetUID())
	w.must(w.client.Status().Update(w.ctx, wanted))
	w.must(w.client.Get(w.ctx, client.ObjectKeyFromObject(o), o))
}

// node is a machine that serves, with its NodeClaim and the cores it publishes.
func (w *world) node(name, machine string, cores ...rt.Core) *corev1.Node {
	w.Helper()
	return w.nodeOf(name, machine, karpv1.CapacityTypeOnDemand, cores...)
}

// nodeOf is a node of a capacity type.
func (w *world) nodeOf(name, machine, capacityType string, cores ...rt.Core) *corev1.Node {
	w.Helper()
	claim := karptest.NodeClaim(karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			karpv1.NodePoolLabelKey: w.pool.Name, corev1.LabelInstanceTypeStable: machine, karpv1.CapacityTypeLabelKey: capacityType,
			corev1.LabelTopologyZone: "test-zone-1", corev1.LabelHostname: name,
		}},
	})
	claim.OwnerReferences, claim.Finalizers = nil, []string{karpv1.TerminationFinalizer}
	claim.Status = karpv1.NodeClaimStatus{}
	w.must(w.client.Create(w.ctx, claim))
	return w.join(claim.Name, cores...)
}

// join lets a NodeClaim's machine come up and serve.
func (w *world) join(name string, cores ...rt.Core) *corev1.Node {
	w.Helper()
	claim := &karpv1.NodeClaim{}
	w.must(w.client.Get(w.ctx, types.NamespacedName{Name: name}, claim))
	claim.Status.ProviderID, claim.Status.NodeName = "test:///"+name, name
	claim.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("5")}
	claim.Status.Allocatable = claim.Status.Capacity
	for _, condition := range []string{karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized, karpv1.ConditionTypeConsolidatable} {
		claim.StatusConditions().SetTrue(condition)
	}
	w.must(w.client.Status().Update(w.ctx, claim))
	node := karptest.NodeClaimLinkedNode(claim)
	node.Name, node.Finalizers = name, nil
	node.Spec.Taints = nil
	node.Labels[karpv1.NodeRegisteredLabelKey], node.Labels[karpv1.NodeInitializedLabelKey] = "true", "true"
	node.Labels[corev1.LabelHostname] = name
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	w.create(node)
	node.Spec.Taints = nil // the API server adds one, until a node is found to be ready
	w.must(w.client.Update(w.ctx, node))
	if len(cores) > 0 {
		w.must(w.store.Update(statetest.Slice(node, cores...)))
	}
	w.sync()
	return node
}

// pod runs on a node, made by a controller. With a percent it has that much of a core, whatever its McKube; without claim,
// so that Karpenter counts nothing but its CPU request.
func (w *world) pod(name, node string, percent int64) *corev1.Pod {
	w.Helper()
	pod := statetest.Pod("default", name, "", "app")
	pod.Labels["app"] = name
	pod.CreationTimestamp = metav1.Time{}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web-1", Controller: ptr.To(true)}}
	pod.Spec.NodeName = node
	pod.Spec.Containers[0].Image = "app"
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	pod.Status.Phase = corev1.PodRunning
	w.create(pod)
	if percent > 0 {
		w.must(w.store.Update(statetest.Selecting(statetest.McKube("default", name, name, "High", percent, percent), name)))
		w.must(w.store.Update(heldFor(pod, node, percent)))
	}
	w.sync()
	return pod
}

// heldFor is the claim by which the controller holds the core of a container that runs without one.
func heldFor(pod *corev1.Pod, node string, percent int64) *resourcev1.ResourceClaim {
	return statetest.Claim(pod, pod.Name, "app", node, 0, rt.PPM(percent*10_000+1_000))
}

// sync lets Karpenter and the store know what the API server has.
func (w *world) sync() {
	w.Helper()
	pods, nodes, claims := &corev1.PodList{}, &corev1.NodeList{}, &karpv1.NodeClaimList{}
	for _, list := range []client.ObjectList{pods, nodes, claims} {
		w.must(w.client.List(w.ctx, list))
	}
	for name := range w.known {
		if !slices.ContainsFunc(claims.Items, func(c karpv1.NodeClaim) bool { return c.Name == name }) {
			w.cluster.DeleteNodeClaim(name)
		}
	}
	for i := range claims.Items {
		w.known[claims.Items[i].Name] = true
		w.cluster.UpdateNodeClaim(&claims.Items[i])
	}
	for i := range nodes.Items {
		w.must(w.cluster.UpdateNode(w.ctx, &nodes.Items[i]))
		w.must(w.store.Update(&nodes.Items[i]))
	}
	for i := range pods.Items {
		w.must(w.cluster.UpdatePod(w.ctx, &pods.Items[i]))
		w.must(w.store.Update(&pods.Items[i]))
	}
	w.syncClaims()
	for name := range w.known { // a node is named as its NodeClaim
		if !slices.ContainsFunc(nodes.Items, func(o corev1.Node) bool { return o.Name == name }) {
			w.cluster.DeleteNode(name)
		}
	}
	w.cluster.Synced(w.ctx)
}

// pass is one of the loop.
func (w *world) pass() {
	w.Helper()
	w.passOf(w.loop)
}

// stock is Karpenter's own loop on the same cluster.
func (w *world) stock() singleton.Reconciler {
	d := w.dependencies
	return karpdisruption.NewController(w.ctx, d.Clock, d.Client, d.Provisioner, d.CloudProvider, d.Recorder, d.Cluster, d.Queue, d.Cost)
}

// passOf is one of a loop. The clock runs on while methods validate what they have found.
func (w *world) passOf(loop singleton.Reconciler) {
	w.Helper()
	done := make(chan error)
	go func() {
		_, err := loop.Reconcile(w.ctx)
		done <- err
	}()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if w.died() {
				return
			}
			w.must(err)
			w.sync()
			return
		case <-tick.C:
			if w.clock.HasWaiters() {
				w.clock.Step(20 * time.Second)
			}
		}
	}
}
