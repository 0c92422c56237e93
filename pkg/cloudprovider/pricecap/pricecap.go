// Package pricecap has a simulation see only the instance types up to a price. Karpenter's scheduler adds pods to a new
// machine for as long as any instance type holds them, so the largest type decides how many machines there are. A search
// that compares few large machines with several small ones simulates each under a cap of its own.
//
// It imports Karpenter's CloudProvider alone.
package pricecap

import (
	"context"
	"slices"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"
)

type key struct{}

// WithCap returns a context under which a decorated provider has no instance type whose cheapest offering costs more than
// a price in USD per hour.
func WithCap(ctx context.Context, price float64) context.Context {
	return context.WithValue(ctx, key{}, price)
}

// Decorate returns the provider with caps. Without a cap in the context it is the provider itself.
func Decorate(p karpcloud.CloudProvider) karpcloud.CloudProvider { return &capped{p} }

type capped struct{ karpcloud.CloudProvider }

// GetInstanceTypes implements cloudprovider.CloudProvider. An instance type that nothing can be launched of stays: it
// names zones and capacity types that pods may spread over.
func (c *capped) GetInstanceTypes(ctx context.Context, pool *karpv1.NodePool) ([]*karpcloud.InstanceType, error) {
	all, err := c.CloudProvider.GetInstanceTypes(ctx, pool)
	most, ok := ctx.Value(key{}).(float64)
	if err != nil || !ok {
		return all, err
	}
	// The provider's own list is shared, and must not change.
	return slices.DeleteFunc(slices.Clone(all), func(it *karpcloud.InstanceType) bool {
		offerings := it.Offerings.Launchable()
		return len(offerings) > 0 && offerings.Cheapest().Price > most
	}), nil
}
