package provisioning_test

import (
	"context"
	"os"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/operator/logging"
	karptest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/simulated"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
)

// machines is a catalogue: a small machine without real-time cores, one with two, one with five, and one whose budgets
// end too late for claims.
const machines = `
sources: {s: test}
zones: [zone-a, zone-b]
instanceTypes:
- {name: small, class: general, family: s, architecture: amd64, cpu: 2, memoryGiB: 8, pods: 10, ephemeralGiB: 20,
   price: {onDemand: 0.01, source: s}, watts: {idle: 10, max: 20, source: s}}
- {name: coarse, class: edge, family: edge, architecture: amd64, cpu: 8, memoryGiB: 8, pods: 10, ephemeralGiB: 20,
   rt: {numaNodes: 1, coresPerNuma: 8, smt: false, housekeeping: [0], bandwidthPpm: 950000, granularityUs: 4000, source: s},
   price: {onDemand: 0.05, source: s}, watts: {idle: 5, max: 12, source: s}}
- {name: box, class: edge, family: edge, architecture: amd64, cpu: 3, memoryGiB: 8, pods: 10, ephemeralGiB: 20,
   rt: {numaNodes: 1, coresPerNuma: 3, smt: false, housekeeping: [0], bandwidthPpm: 950000, source: s},
   price: {onDemand: 0.1, source: s}, watts: {idle: 5, max: 12, source: s}}
- {name: bigbox, class: edge, family: edge, architecture: amd64, cpu: 6, memoryGiB: 16, pods: 20, ephemeralGiB: 20,
   rt: {numaNodes: 1, coresPerNuma: 6, smt: false, housekeeping: [0], bandwidthPpm: 950000, source: s},
   price: {onDemand: 0.3, source: s}, watts: {idle: 5, max: 12, source: s}}
`

// scheme is client-go's, in which Karpenter and kwok register their types.
var scheme = sync.OnceValues(func() (*runtime.Scheme, error) {
	cloudprovider.RegisterLabels()
	for _, add := range []func(*runtime.Scheme) error{mcv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(clientgoscheme.Scheme); err != nil {
			return nil, err
		}
	}
	return clientgoscheme.Scheme, nil
})

func TestMain(m *testing.M) {
	log.SetLogger(logging.NopLogger)
	os.Exit(apiserver.Main(m))
}

// provider is the simulated cloud with these machines, whose faults are those that a client finds.
func provider(t testing.TB, c client.Client) karpcloud.CloudProvider {
	t.Helper()
	out, _ := simulatedCloud(t, c, clock.RealClock{})
	return out
}

// simulatedCloud is the same, and the loop by which its machines join.
func simulatedCloud(t testing.TB, c client.Client, now clock.Clock) (karpcloud.CloudProvider, reconcile.Reconciler) {
	t.Helper()
	known, err := catalogue.Parse("machines", []byte(machines))
	if err != nil {
		t.Fatal(err)
	}
	types, err := simulated.InstanceTypes(context.Background(), known)
	if err != nil {
		t.Fatal(err)
	}
	sim, err := simulated.New(context.Background(), simulated.Options{
		Client: c, Clock: now, Recorder: karptest.NewEventRecorder(), Catalogue: known, InstanceTypes: types,
	})
	if err != nil {
		t.Fatal(err)
	}
	return cloudprovider.Decorate(sim, known), sim.Controllers()[0].(reconcile.Reconciler)
}

func nodePool(name string) *karpv1.NodePool {
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.kwok.sh", Kind: "KWOKNodeClass", Name: "default"}
	pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{
		{Key: v1alpha1.LabelHardwareClass, Operator: corev1.NodeSelectorOpIn, Values: []string{"edge", "general"}},
	}
	pool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("0s")
	return pool
}
