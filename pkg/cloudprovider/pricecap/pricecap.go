// Package pricecap has a simulation see only the offerings up to a price. Karpenter's scheduler adds pods to a new machine
// for as long as any instance type holds them, so the largest type decides how many machines there are. A search that
// compares few large machines with several small ones simulates each under a cap of its own.
package pricecap

import (
	"context"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/mainspring-rt/mainspring/pkg/cloudprovider"
)

type key struct{}

// WithCap returns a context under which a decorated provider has no offering available above a price in USD per hour, and
// none whose price says nothing.
func WithCap(ctx context.Context, price float64) context.Context {
	return context.WithValue(ctx, key{}, price)
}

// Decorate returns the provider with caps. Without a cap in the context it is the provider itself.
func Decorate(p karpcloud.CloudProvider) karpcloud.CloudProvider { return &capped{p} }

type capped struct{ karpcloud.CloudProvider }

// GetInstanceTypes implements cloudprovider.CloudProvider. Every instance type stays: it names zones that pods spread over.
func (c *capped) GetInstanceTypes(ctx context.Context, pool *karpv1.NodePool) ([]*karpcloud.InstanceType, error) {
	all, err := c.CloudProvider.GetInstanceTypes(ctx, pool)
	most, ok := ctx.Value(key{}).(float64)
	if err != nil || !ok {
		return all, err
	}
	out := make([]*karpcloud.InstanceType, len(all)) // the provider's own list is shared
	for i, it := range all {
		above := make([]bool, len(it.Offerings))
		for j, o := range it.Offerings {
			above[j] = o.Price > most || !cloudprovider.UsablePrice(o.Price)
		}
		out[i] = cloudprovider.WithoutOfferings(it, above)
	}
	return out, nil
}
