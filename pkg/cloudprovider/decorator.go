// Package cloudprovider gives any Karpenter cloud provider our knowledge of machines: the real-time
// cores of an instance type as DRA devices, its prices, and its watts, hardware class and accelerator
// models as labels that NodePools and pods may select on.
package cloudprovider

import (
	"context"
	"slices"
	"sync"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
)

// Decorate returns a provider that answers as inner does, but whose instance types also carry what
// the catalogue knows about the machine of the same name. Types that the catalogue does not know
// keep what they have; our labels are then defined as absent, because Karpenter takes an undefined
// well-known label for a match.
//
// The result is a pure function of inner's answer. It is cached for each NodePool and reused for as
// long as inner returns the same pointers, so that a repeated call costs a comparison of pointers
// and allocates nothing; inner's objects are never changed. It is safe for concurrent use.
func Decorate(inner cloudprovider.CloudProvider, machines *catalogue.Catalogue) cloudprovider.CloudProvider {
	return &decorator{
		CloudProvider: inner,
		machines:      machines,
		answers:       map[string]answer{},
		types:         map[*cloudprovider.InstanceType]*cloudprovider.InstanceType{},
	}
}

// maxAnswers bounds the cache over NodePools that come and go.
const maxAnswers = 512

type decorator struct {
	cloudprovider.CloudProvider
	machines *catalogue.Catalogue

	mu      sync.RWMutex
	answers map[string]answer // by name of the NodePool
	types   map[*cloudprovider.InstanceType]*cloudprovider.InstanceType
}

// answer is what inner said for a NodePool and what we made of it.
type answer struct {
	inner, outer []*cloudprovider.InstanceType
}

// GetInstanceTypes returns inner's instance types with our knowledge added.
func (d *decorator) GetInstanceTypes(ctx context.Context, nodePool *karpv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	inner, err := d.CloudProvider.GetInstanceTypes(ctx, nodePool)
	if err != nil {
		return nil, err // as it is: callers branch on inner's typed errors
	}
	name := ""
	if nodePool != nil {
		name = nodePool.Name
	}
	d.mu.RLock()
	cached, ok := d.answers[name]
	d.mu.RUnlock()
	if ok && slices.Equal(cached.inner, inner) {
		return cached.outer, nil
	}
	return d.decorate(name, inner), nil
}

// decorate makes and stores the answer for a NodePool. Two calls at once for the same types yield
// the same decorated pointers.
func (d *decorator) decorate(nodePool string, inner []*cloudprovider.InstanceType) []*cloudprovider.InstanceType {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.answers[nodePool]; !ok && len(d.answers) >= maxAnswers {
		clear(d.answers)
	}
	outer := make([]*cloudprovider.InstanceType, len(inner))
	for i, it := range inner {
		if d.types[it] == nil {
			d.types[it] = withKnowledge(it, d.machines)
		}
		outer[i] = d.types[it]
	}
	d.answers[nodePool] = answer{inner: slices.Clone(inner), outer: outer}
	d.forget()
	return outer
}

// forget drops decorated types that no answer holds any more. The caller holds the lock.
func (d *decorator) forget() {
	live := make(map[*cloudprovider.InstanceType]*cloudprovider.InstanceType, len(d.types))
	for _, a := range d.answers {
		for i, it := range a.inner {
			live[it] = a.outer[i]
		}
	}
	d.types = live
}
