package limits

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/events"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
)

// Provider is a cloud provider within the limits of CostPolicies and PowerPolicies. It is safe for concurrent use.
type Provider struct {
	cloudprovider.CloudProvider
	client   client.Reader
	clock    clock.PassiveClock
	recorder events.Recorder

	launching sync.Mutex // held while room is compared and reserved
	looked    time.Time  // when the cloud last said which machines there are; zero: this process does not know
	asked     time.Time  // when it was last asked

	mu        sync.Mutex
	starting  map[types.UID]*launch      // by UID of the NodeClaim, until the cache shows it launched
	unclaimed map[string]unclaimed       // by provider ID: machines that no NodeClaim had when the cloud was asked
	stale     bool                       // a NodeClaim that may have a machine has gone, or is about to
	answers   map[string]answer          // by name of the NodePool
	rooms     map[string]measured        // by name of the NodePool
	offered   map[string][]*instanceType // by name of the NodePool, when the provider last answered
	watts     map[*instanceType]float64  // under full load
}

type instanceType = cloudprovider.InstanceType

const (
	// maxAnswers bounds the caches over NodePools that come and go.
	maxAnswers = 512
	// roomAge is for how long plans are made with one room: drift asks once for each NodeClaim.
	roomAge = time.Second
	// lookPause is the least time between two questions to the cloud which machines there are, lookTimeout bounds one.
	lookPause   = 30 * time.Second
	lookTimeout = 20 * time.Second
	// maxTypes bounds what is remembered of instance types.
	maxTypes = 1 << 13
	// eventPause is the least time between two Events that say the same.
	eventPause = 10 * time.Minute
)

// ReasonPolicyLimit is the reason of the Event on a NodePool that opens no machine for a policy.
const ReasonPolicyLimit = "PolicyLimit"

// Decorate returns a provider whose GetInstanceTypes and Create keep to the policies that the client reads. Where no
// policy bounds a NodePool, both answer as inner does, with the same pointers.
func Decorate(inner cloudprovider.CloudProvider, c client.Reader, recorder events.Recorder, clock clock.PassiveClock) *Provider {
	return &Provider{
		CloudProvider: inner, client: c, clock: clock, recorder: recorder,
		starting: map[types.UID]*launch{}, unclaimed: map[string]unclaimed{}, answers: map[string]answer{}, rooms: map[string]measured{},
		offered: map[string][]*instanceType{}, watts: map[*instanceType]float64{},
	}
}

// readRules reads the policies, and where there are any the NodePools.
func (p *Provider) readRules(ctx context.Context) (rules, error) {
	costs, powers := &kcloudv1alpha1.CostPolicyList{}, &kcloudv1alpha1.PowerPolicyList{}
	if err := p.client.List(ctx, costs, client.UnsafeDisableDeepCopy); err != nil {
		return rules{}, fmt.Errorf("listing CostPolicies: %w", err)
	}
	if err := p.client.List(ctx, powers, client.UnsafeDisableDeepCopy); err != nil {
		return rules{}, fmt.Errorf("listing PowerPolicies: %w", err)
	}
	r := rules{costs: costs.Items, powers: powers.Items}
	if len(r.costs)+len(r.powers) == 0 {
		return r, nil
	}
	list := &karpenterv1.NodePoolList{}
	if err := p.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return rules{}, fmt.Errorf("listing NodePools: %w", err)
	}
	r.nodePools = map[string]*karpenterv1.NodePool{}
	for i := range list.Items {
		r.nodePools[list.Items[i].Name] = &list.Items[i]
	}
	return r, nil
}
