package limits

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	machines "github.com/mainspring-rt/mainspring/pkg/cloudprovider"
)

// answer is what the provider said for a NodePool, and what a room left of it.
type answer struct {
	inner, outer []*cloudprovider.InstanceType
	withdrawn    []bool // of every offering, in order
}

// measured is the room of a NodePool at a moment.
type measured struct {
	room
	at time.Time
}

// GetInstanceTypes returns the instance types of the NodePool. Offerings that its policies leave no room for are
// unavailable; none is left out, because Karpenter takes a machine whose type is gone for drifted.
func (p *Provider) GetInstanceTypes(ctx context.Context, np *karpenterv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	inner, err := p.CloudProvider.GetInstanceTypes(ctx, np)
	if err != nil || np == nil {
		return inner, err // as it is: callers branch on its type
	}
	r, err := p.readRules(ctx)
	if err != nil {
		return nil, err
	}
	if !r.bounds(np.Name) {
		return inner, nil
	}
	left, err := p.planned(ctx, r, np)
	if err != nil {
		return nil, err
	}
	outer, some := p.withdraw(np.Name, inner, left)
	if some && closes(np, inner, outer) {
		p.recorder.Publish(limitReached(np, left))
	}
	return outer, nil
}

// planned returns the room that plans for the NodePool are made with.
func (p *Provider) planned(ctx context.Context, r rules, np *karpenterv1.NodePool) (room, error) {
	now := p.clock.Now()
	p.mu.Lock()
	last, ok := p.rooms[np.Name]
	p.mu.Unlock()
	if ok && now.Sub(last.at).Abs() < roomAge {
		return last.room, nil
	}
	p.refreshForPlan(ctx, r)
	open, err := p.machines(ctx, r, forPlan)
	if err != nil {
		return room{}, err
	}
	left := r.room(np.Name, open, now)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.rooms) >= maxAnswers {
		clear(p.rooms)
	}
	p.rooms[np.Name] = measured{room: left, at: now}
	return left, nil
}

// limitReached tells that policies keep a NodePool from opening any machine.
func limitReached(np *karpenterv1.NodePool, r room) events.Event {
	return events.Event{
		InvolvedObject: np, Type: corev1.EventTypeNormal, Reason: ReasonPolicyLimit,
		Message:       fmt.Sprintf("No machine is opened: %s", r),
		DedupeValues:  []string{string(np.UID), r.closed, r.dollarsBy, r.wattsBy, r.notBy},
		DedupeTimeout: eventPause,
	}
}

// withdraw returns the instance types with every offering unavailable that the room does not admit. As long as these
// are the same offerings of the same types, the answer has the same pointers; types under NodeOverlays are new ones at
// each call. some: there are such.
func (p *Provider) withdraw(nodePool string, inner []*cloudprovider.InstanceType, r room) (outer []*cloudprovider.InstanceType, some bool) {
	withdrawn, some := p.withdrawnOf(inner, r)
	if !some {
		return inner, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if a, ok := p.answers[nodePool]; ok && slices.Equal(a.inner, inner) && slices.Equal(a.withdrawn, withdrawn) {
		return a.outer, true
	}
	if len(p.answers) >= maxAnswers {
		clear(p.answers)
	}
	n := 0
	outer = make([]*cloudprovider.InstanceType, len(inner))
	for i, it := range inner {
		outer[i] = machines.WithoutOfferings(it, withdrawn[n:n+len(it.Offerings)])
		n += len(it.Offerings)
	}
	p.answers[nodePool] = answer{inner: slices.Clone(inner), outer: outer, withdrawn: withdrawn}
	return outer, true
}

// closes tells whether policies leave nothing of what was available to the NodePool. Types that its requirements exclude do not count.
func closes(np *karpenterv1.NodePool, inner, outer []*cloudprovider.InstanceType) bool {
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(np.Spec.Template.Spec.Requirements...)
	wanted.Add(scheduling.NewLabelRequirements(np.Spec.Template.Labels).Values()...)
	return available(inner, wanted) && !available(outer, wanted)
}

// available tells whether any type has an available offering that meets the requirements.
func available(types []*cloudprovider.InstanceType, wanted scheduling.Requirements) bool {
	return slices.ContainsFunc(types, func(it *cloudprovider.InstanceType) bool {
		return it.Requirements.Intersects(wanted) == nil && it.Offerings.Available().HasCompatible(wanted)
	})
}

func (p *Provider) withdrawnOf(inner []*cloudprovider.InstanceType, r room) (withdrawn []bool, some bool) {
	for _, it := range inner {
		watts, dearest := p.wattsOf(it), map[string]float64{}
		for _, o := range it.Offerings {
			if o.Available {
				dearest[o.CapacityType()] = max(dearest[o.CapacityType()], o.Price)
			}
		}
		for _, o := range it.Offerings {
			capacityType := o.CapacityType() // a launch may take any of its offerings
			gone := o.Available && !r.admits(machine{dollars: dearest[capacityType], watts: watts, spot: capacityType == karpenterv1.CapacityTypeSpot})
			withdrawn, some = append(withdrawn, gone), some || gone
		}
	}
	return withdrawn, some
}
