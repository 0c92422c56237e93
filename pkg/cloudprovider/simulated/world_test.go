package simulated_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kwokapi "sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/test"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/simulated"
)

// small is a catalogue with one reservation of two machines and one edge machine.
const small = `
sources: {s: test}
zones: [zone-a, zone-b]
instanceTypes:
- {name: small, class: general, family: s, architecture: amd64, cpu: 2, memoryGiB: 8, pods: 10, ephemeralGiB: 20,
   price: {onDemand: 1, spot: 0.5, source: s}, watts: {idle: 10, max: 20, source: s}}
- {name: large, class: general, family: l, architecture: amd64, cpu: 8, memoryGiB: 32, pods: 40, ephemeralGiB: 20,
   price: {onDemand: 4, spot: 2, source: s}, watts: {idle: 40, max: 80, source: s},
   reserved: {price: 0.25, count: 2, zone: zone-a, source: s}}
- {name: box, class: edge, family: edge, architecture: amd64, cpu: 4, memoryGiB: 8, pods: 10, ephemeralGiB: 20,
   rt: {numaNodes: 1, coresPerNuma: 4, smt: false, housekeeping: [0], bandwidthPpm: 950000, source: s},
   price: {onDemand: 0.1, source: s}, watts: {idle: 5, max: 12, source: s}}
`

const reservationID = "large.zone-a"

// world is an API server in memory, a clock, and the simulated cloud. restart throws away everything
// that a process would lose.
type world struct {
	client   client.WithWatch // of users and tests
	process  client.Client    // of the process; its calls can be intercepted
	clock    *clocktesting.FakeClock
	recorder *test.EventRecorder
	machines *catalogue.Catalogue
	provider *simulated.Provider
}

// testing.TB and *rapid.T alike.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

func TestMain(m *testing.M) {
	// Karpenter and kwok register their types in client-go's scheme; so do we.
	if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
		panic(err)
	}
	cloudprovider.RegisterLabels()
	os.Exit(m.Run())
}

func newWorld(t failer, intercept interceptor.Funcs, objects ...client.Object) *world {
	t.Helper()
	machines, err := catalogue.Parse("small", []byte(small))
	if err != nil {
		t.Fatalf("parsing catalogue: %v", err)
	}
	w := &world{
		clock:    clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
		recorder: test.NewEventRecorder(),
		machines: machines,
	}
	// The plain tracker keeps no managed fields, which nothing here needs, and is far faster.
	tracker := clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())
	w.client = fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjectTracker(tracker).
		WithStatusSubresource(&karpv1.NodeClaim{}, &v1alpha1.SimulatedFault{}).
		WithObjects(append(objects, nodeClass())...).Build()
	w.process = interceptor.NewClient(w.client, intercept)
	w.restart(t)
	return w
}

// restart is a new process on the same API server.
func (w *world) restart(t failer) {
	t.Helper()
	types, err := simulated.InstanceTypes(context.Background(), w.machines)
	if err != nil {
		t.Fatalf("making instance types: %v", err)
	}
	w.provider, err = simulated.New(context.Background(), simulated.Options{
		Client: w.process, Clock: w.clock, Recorder: w.recorder, Catalogue: w.machines, InstanceTypes: types,
	})
	if err != nil {
		t.Fatalf("making provider: %v", err)
	}
}

func nodeClass() *kwokapi.KWOKNodeClass {
	return &kwokapi.KWOKNodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
		Spec:       kwokapi.KWOKNodeClassSpec{NodeRegistrationDelay: metav1.Duration{Duration: 10 * time.Second}},
	}
}

func nodePool(name string, requirements ...karpv1.NodeSelectorRequirementWithMinValues) *karpv1.NodePool {
	np := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	np.Spec.Template.Spec.Requirements = requirements
	return np
}

func requires(key string, values ...string) karpv1.NodeSelectorRequirementWithMinValues {
	return karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

// nodeClaim is as Karpenter creates it for a NodePool, before it is launched.
func nodeClaim(name, pool string, requirements ...karpv1.NodeSelectorRequirementWithMinValues) *karpv1.NodeClaim {
	return &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("uid-" + name), Finalizers: []string{karpv1.TerminationFinalizer},
			Labels: map[string]string{karpv1.NodePoolLabelKey: pool},
		},
		Spec: karpv1.NodeClaimSpec{
			NodeClassRef: &karpv1.NodeClassReference{Group: "karpenter.kwok.sh", Kind: "KWOKNodeClass", Name: "default"},
			Requirements: requirements,
		},
	}
}

func fault(name string, spec v1alpha1.SimulatedFaultSpec) *v1alpha1.SimulatedFault {
	return &v1alpha1.SimulatedFault{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}, Spec: spec}
}

func (w *world) create(t failer, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		o.SetCreationTimestamp(metav1.NewTime(w.clock.Now()))
		if err := w.client.Create(context.Background(), o); err != nil {
			t.Fatalf("creating %s: %v", o.GetName(), err)
		}
	}
}

func (w *world) claim(t failer, name string) *karpv1.NodeClaim {
	t.Helper()
	claim := &karpv1.NodeClaim{}
	if err := w.client.Get(context.Background(), types.NamespacedName{Name: name}, claim); err != nil {
		t.Fatalf("getting NodeClaim %s: %v", name, err)
	}
	return claim
}

func (w *world) fault(t failer, name string) *v1alpha1.SimulatedFault {
	t.Helper()
	f := &v1alpha1.SimulatedFault{}
	if err := w.client.Get(context.Background(), types.NamespacedName{Name: name}, f); err != nil {
		t.Fatalf("getting SimulatedFault %s: %v", name, err)
	}
	return f
}

func (w *world) nodes(t failer) []corev1.Node {
	t.Helper()
	list := &corev1.NodeList{}
	if err := w.client.List(context.Background(), list); err != nil {
		t.Fatalf("listing Nodes: %v", err)
	}
	return list.Items
}

// launch does what Karpenter's launch step does: Create, then two patches.
func (w *world) launch(name string) error {
	claim := &karpv1.NodeClaim{}
	if err := w.process.Get(context.Background(), types.NamespacedName{Name: name}, claim); err != nil {
		return err
	}
	created, err := w.provider.Create(context.Background(), claim)
	if err != nil {
		return err
	}
	return w.persist(claim, created)
}

// persist writes what Create returned, as Karpenter does: labels and annotations, then the status.
func (w *world) persist(claim, created *karpv1.NodeClaim) error {
	ctx := context.Background()
	stored := claim.DeepCopy()
	claim.Labels = merged(created.Labels, claim.Labels)
	claim.Annotations = merged(claim.Annotations, created.Annotations)
	if err := w.process.Patch(ctx, claim, client.MergeFrom(stored)); err != nil {
		return err
	}
	stored = claim.DeepCopy()
	claim.Status.ProviderID = created.Status.ProviderID
	claim.Status.Capacity = created.Status.Capacity
	claim.Status.Allocatable = created.Status.Allocatable
	setCondition(claim, karpv1.ConditionTypeLaunched, w.clock.Now())
	return w.process.Status().Patch(ctx, claim, client.MergeFrom(stored))
}

func setCondition(claim *karpv1.NodeClaim, conditionType string, now time.Time) {
	claim.StatusConditions().SetTrue(conditionType)
	for i := range claim.Status.Conditions {
		if claim.Status.Conditions[i].Type == conditionType {
			claim.Status.Conditions[i].LastTransitionTime = metav1.NewTime(now)
		}
	}
}

// register does what Karpenter's registration does, as far as the provider sees it.
func (w *world) register(name string) error {
	ctx := context.Background()
	claim := &karpv1.NodeClaim{}
	if err := w.process.Get(ctx, types.NamespacedName{Name: name}, claim); err != nil {
		return err
	}
	stored := claim.DeepCopy()
	setCondition(claim, karpv1.ConditionTypeRegistered, w.clock.Now())
	claim.Status.NodeName = simulated.NodeName(claim.Name, claim.UID)
	return w.process.Status().Patch(ctx, claim, client.MergeFrom(stored))
}

func merged(base, over map[string]string) map[string]string {
	result := map[string]string{}
	for _, m := range []map[string]string{base, over} {
		for k, v := range m {
			result[k] = v
		}
	}
	return result
}

// up launches a NodeClaim and brings it to registered.
func (w *world) up(t failer, name string) {
	t.Helper()
	if err := w.launch(name); err != nil {
		t.Fatalf("launching %s: %v", name, err)
	}
	w.clock.Step(10 * time.Second)
	w.reconcile(t, w.provider.Registrar(), name)
	if err := w.register(name); err != nil {
		t.Fatalf("registering %s: %v", name, err)
	}
	w.createLease(t, simulated.NodeName(name, w.claim(t, name).UID))
}

func (w *world) createLease(t failer, node string) {
	t.Helper()
	holder, seconds, renewed := "kwok", int32(40), metav1.NewMicroTime(w.clock.Now())
	w.create(t, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &renewed},
	})
}

func (w *world) lease(t failer, node string) *coordinationv1.Lease {
	t.Helper()
	lease := &coordinationv1.Lease{}
	if err := w.client.Get(context.Background(), types.NamespacedName{Namespace: corev1.NamespaceNodeLease, Name: node}, lease); err != nil {
		t.Fatalf("getting lease: %v", err)
	}
	return lease
}

func (w *world) reconcile(t failer, r reconcile.Reconciler, name string) reconcile.Result {
	t.Helper()
	result, err := r.Reconcile(context.Background(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	if err != nil {
		t.Fatalf("reconciling %s: %v", name, err)
	}
	return result
}

func (w *world) types(t failer, pool *karpv1.NodePool) map[string]*karpcloud.InstanceType {
	t.Helper()
	list, err := w.provider.GetInstanceTypes(context.Background(), pool)
	if err != nil {
		t.Fatalf("getting instance types: %v", err)
	}
	byName := map[string]*karpcloud.InstanceType{}
	for _, it := range list {
		byName[it.Name] = it
	}
	return byName
}

// offeringOf finds an offering by capacity type and zone.
func offeringOf(t failer, it *karpcloud.InstanceType, capacityType, zone string) *karpcloud.Offering {
	t.Helper()
	for _, of := range it.Offerings {
		if of.CapacityType() == capacityType && of.Zone() == zone {
			return of
		}
	}
	t.Fatalf("%s has no %s offering in %s", it.Name, capacityType, zone)
	return nil
}

func describe(claim *karpv1.NodeClaim) string {
	return fmt.Sprintf("%s %s %s", claim.Labels[karpv1.CapacityTypeLabelKey], claim.Labels[corev1.LabelInstanceTypeStable], claim.Labels[corev1.LabelTopologyZone])
}
