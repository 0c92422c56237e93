package limits_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/limits"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// cloud launches any offering that a NodeClaim may take, and not the cheapest: the limits must hold whichever it takes.
type cloud struct {
	cloudprovider.CloudProvider
	types  []*cloudprovider.InstanceType
	err    error
	silent string // a NodePool of which it does not say what it is offered
	lost   bool   // err is told after the launch
	names  bool   // List knows the names of NodeClaims
	enter  func() // is called at the beginning of each launch

	mu       sync.Mutex
	random   *rand.Rand
	launched map[types.UID]*karpenterv1.NodeClaim
}

func (c *cloud) GetInstanceTypes(_ context.Context, np *karpenterv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	if np.Name == c.silent {
		return nil, errors.New("not evaluated yet")
	}
	return c.types, nil
}

func (c *cloud) Create(_ context.Context, claim *karpenterv1.NodeClaim) (*karpenterv1.NodeClaim, error) {
	if c.enter != nil {
		c.enter()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil && !c.lost {
		return nil, c.err
	}
	if done := c.launched[claim.UID]; done != nil {
		return done, nil
	}
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...)
	var choices []*karpenterv1.NodeClaim
	for _, it := range c.types {
		for _, o := range it.Offerings {
			if !o.Available || it.Requirements.Intersects(wanted) != nil || wanted.Compatible(o.Requirements, scheduling.AllowUndefinedWellKnownLabels) != nil {
				continue
			}
			choices = append(choices, &karpenterv1.NodeClaim{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
					karpenterv1.NodePoolLabelKey:   claim.Labels[karpenterv1.NodePoolLabelKey],
					corev1.LabelInstanceTypeStable: it.Name, karpenterv1.CapacityTypeLabelKey: o.CapacityType(), corev1.LabelTopologyZone: "z",
					mckubev1alpha1.LabelWattsIdle: "1", mckubev1alpha1.LabelWattsMax: it.Requirements.Get(mckubev1alpha1.LabelWattsMax).Any(),
				}, Annotations: map[string]string{mckubev1alpha1.AnnotationPricePerHour: fmt.Sprint(o.Price)}},
				Status: karpenterv1.NodeClaimStatus{ProviderID: "id://" + string(claim.UID)},
			})
		}
	}
	if len(choices) == 0 {
		return nil, cloudprovider.NewInsufficientCapacityError(errors.New("nothing left"))
	}
	made := choices[c.random.IntN(len(choices))]
	c.launched[claim.UID] = made
	return made, c.err
}

func (c *cloud) List(context.Context) ([]*karpenterv1.NodeClaim, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []*karpenterv1.NodeClaim
	for uid, made := range c.launched {
		made = made.DeepCopy()
		if c.names {
			made.Name = string(uid)
		}
		list = append(list, made)
	}
	return list, nil
}

// sum is what all machines that were launched cost and draw, and how many are spot machines.
func (c *cloud) sum(t *testing.T) (cost, power float64, spot int) {
	t.Helper()
	for _, made := range c.launched {
		var price, drawn float64
		if _, err := fmt.Sscan(made.Annotations[mckubev1alpha1.AnnotationPricePerHour]+" "+made.Labels[mckubev1alpha1.LabelWattsMax], &price, &drawn); err != nil {
			t.Fatal(err)
		}
		cost, power = cost+price, power+drawn
		if made.Labels[karpenterv1.CapacityTypeLabelKey] == "spot" {
			spot++
		}
	}
	return cost, power, spot
}

// machine is an instance type that draws 100 W for each core, and costs this on demand and 0.4 of it as spot.
func machine(name string, cores int, price float64) *cloudprovider.InstanceType {
	in := func(key string, values ...string) *scheduling.Requirement {
		return scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, values...)
	}
	it := &cloudprovider.InstanceType{
		Name: name, Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(fmt.Sprint(cores))}, Overhead: &cloudprovider.InstanceTypeOverhead{},
		Requirements: scheduling.NewRequirements(in(corev1.LabelInstanceTypeStable, name), in(karpenterv1.CapacityTypeLabelKey, "on-demand", "spot"),
			in(mckubev1alpha1.LabelWattsIdle, "1"), in(mckubev1alpha1.LabelWattsMax, fmt.Sprint(100*cores))),
	}
	for _, capacityType := range []string{"on-demand", "spot"} {
		factor := map[string]float64{"on-demand": 1, "spot": 0.4}[capacityType]
		it.Offerings = append(it.Offerings, &cloudprovider.Offering{
			Price: price * factor, Available: true,
			Requirements: scheduling.NewRequirements(in(corev1.LabelTopologyZone, "z"), in(karpenterv1.CapacityTypeLabelKey, capacityType)),
		})
	}
	return it
}

type world struct {
	t      *testing.T
	client client.Client
	clock  *clocktesting.FakePassiveClock
	cloud  *cloud
	*limits.Provider

	mu     sync.Mutex
	events []events.Event
}

func (w *world) Publish(list ...events.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, list...)
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme := clientgoscheme.Scheme // in which Karpenter registers its types
	if err := kcloudv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, clock: clocktesting.NewFakePassiveClock(time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC))}
	w.cloud = &cloud{types: []*cloudprovider.InstanceType{machine("m2", 2, 1), machine("m4", 4, 2), machine("m8", 8, 4)}, launched: map[types.UID]*karpenterv1.NodeClaim{}}
	w.cloud.random = sampling.Rand(t)
	w.client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&karpenterv1.NodeClaim{}).WithObjects(objects...).Build()
	w.restart()
	return w
}

// restart has another process go on.
func (w *world) restart() { w.Provider = limits.Decorate(w.cloud, w.client, w, w.clock) }

func (w *world) create(objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		if err := w.client.Create(w.t.Context(), o); err != nil {
			w.t.Fatal(err)
		}
	}
}

// claim asks for any machine of the NodePool.
func (w *world) claim(name, nodePool string) *karpenterv1.NodeClaim {
	w.t.Helper()
	c := &karpenterv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), Labels: map[string]string{karpenterv1.NodePoolLabelKey: nodePool}, CreationTimestamp: metav1.NewTime(w.clock.Now()),
	}}
	w.create(c)
	return c
}

// record writes what was launched on the NodeClaim, as Karpenter does.
func (w *world) record(c, made *karpenterv1.NodeClaim) error {
	for key, value := range made.Labels {
		c.Labels[key] = value
	}
	c.Annotations = made.Annotations
	if err := w.client.Update(context.Background(), c); err != nil {
		return err
	}
	c.Status.ProviderID = made.Status.ProviderID
	return w.client.Status().Update(context.Background(), c)
}

func (w *world) launch(name, nodePool string) error {
	w.t.Helper()
	c := w.claim(name, nodePool)
	made, err := w.Create(w.t.Context(), c)
	if err == nil {
		err = w.record(c, made)
	} else if derr := w.client.Delete(w.t.Context(), c); derr != nil {
		w.t.Fatal(derr)
	}
	w.clock.SetTime(w.clock.Now().Add(2 * time.Second))
	return err
}

func pool(name string, annotations ...string) *karpenterv1.NodePool {
	np := test.NodePool(name)
	for i := 0; i < len(annotations); i += 2 {
		if np.Annotations == nil {
			np.Annotations = map[string]string{}
		}
		np.Annotations[annotations[i]] = annotations[i+1]
	}
	return np
}

func costsAtMost(dollars float64) func(*kcloudv1alpha1.CostPolicy) {
	return func(p *kcloudv1alpha1.CostPolicy) { p.Spec.CostPerHourLimit = ptr.To(dollars) }
}

func drawsAtMost(watts float64) func(*kcloudv1alpha1.PowerPolicy) {
	return func(p *kcloudv1alpha1.PowerPolicy) { p.Spec.MaxPowerUsage = ptr.To(watts) }
}

// offered are the offerings that plans for the NodePool may use.
func (w *world) offered(np *karpenterv1.NodePool) []string {
	w.t.Helper()
	list, err := w.GetInstanceTypes(w.t.Context(), np)
	if err != nil {
		w.t.Fatal(err)
	}
	if len(list) != len(w.cloud.types) {
		w.t.Errorf("%d instance types, want all %d", len(list), len(w.cloud.types))
	}
	var out []string
	for _, it := range list {
		for _, o := range it.Offerings {
			if o.Available {
				out = append(out, it.Name+"/"+o.CapacityType())
			}
		}
	}
	return out
}

func (w *world) expectOffered(np *karpenterv1.NodePool, want string) {
	w.t.Helper()
	if got := strings.Join(w.offered(np), " "); got != want {
		w.t.Errorf("offered to %s: %s\nwant: %s", np.Name, got, want)
	}
}

const everything = "m2/on-demand m2/spot m4/on-demand m4/spot m8/on-demand m8/spot"

// holding has the next listing of NodeClaims wait.
type holding struct {
	client.Client
	mu           sync.Mutex
	listed, goOn chan struct{}
}

func (h *holding) List(ctx context.Context, l client.ObjectList, options ...client.ListOption) error {
	err := h.Client.List(ctx, l, options...)
	h.mu.Lock()
	listed, goOn := h.listed, h.goOn
	if _, ok := l.(*karpenterv1.NodeClaimList); ok {
		h.listed, h.goOn = nil, nil
	}
	h.mu.Unlock()
	if _, ok := l.(*karpenterv1.NodeClaimList); ok && listed != nil {
		close(listed)
		<-goOn
	}
	return err
}
