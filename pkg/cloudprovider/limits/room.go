package limits

import (
	"fmt"
	"math"
	"strings"
	"time"

	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
)

// rounding is what sums of prices and watts may be off by.
const rounding = 1e-9

// machine is one that runs, starts or may be opened.
type machine struct {
	nodePool string
	dollars  float64 // per hour
	watts    float64 // under full load
	spot     bool
	passing  bool // it may come to nothing, or goes
}

// room is what a NodePool may still open. Each bound has the name of the policy that it is from.
type room struct {
	dollars, watts            float64 // +Inf: no policy bounds them
	spot                      bool
	closed                    string // why nothing may be opened; empty
	dollarsBy, wattsBy, notBy string
}

func unlimited() room { return room{dollars: math.Inf(1), watts: math.Inf(1), spot: true} }

// admits reports whether the machine may be opened.
func (r room) admits(m machine) bool {
	return r.closed == "" && m.dollars <= r.dollars && m.watts <= r.watts && (r.spot || !m.spot)
}

// String says what bounds the room.
func (r room) String() string {
	if r.closed != "" {
		return r.closed
	}
	var parts []string
	if !math.IsInf(r.dollars, 1) {
		parts = append(parts, fmt.Sprintf("costPerHourLimit of CostPolicy %s leaves %.4f USD per hour", r.dollarsBy, max(0, r.dollars)))
	}
	if !math.IsInf(r.watts, 1) {
		parts = append(parts, fmt.Sprintf("maxPowerUsage of PowerPolicy %s leaves %.0f W", r.wattsBy, max(0, r.watts)))
	}
	if !r.spot {
		parts = append(parts, fmt.Sprintf("spotInstancePolicy of CostPolicy %s allows no further spot machine", r.notBy))
	}
	return strings.Join(parts, ", ")
}

// rules are the policies, and which NodePools there are.
type rules struct {
	costs     []kcloudv1alpha1.CostPolicy
	powers    []kcloudv1alpha1.PowerPolicy
	nodePools map[string]*karpenterv1.NodePool
}

// applies reports whether the machines of a NodePool are under a policy: the one that the NodePool's annotation names
// or, without the annotation, every one that is about all pods. Suspended policies bound nothing.
func applies(np *karpenterv1.NodePool, annotation, policy string, s kcloudv1alpha1.Selection, annotations map[string]string) bool {
	if annotations[kcloudv1alpha1.AnnotationDisabled] == "true" {
		return false
	}
	if np != nil {
		if named, ok := np.Annotations[annotation]; ok {
			return named == policy
		}
	}
	return s.Everything()
}

func (r rules) costApplies(p *kcloudv1alpha1.CostPolicy, nodePool string) bool {
	return applies(r.nodePools[nodePool], kcloudv1alpha1.AnnotationCostPolicy, p.Name, p.Spec.Selection, p.Annotations)
}

func (r rules) powerApplies(p *kcloudv1alpha1.PowerPolicy, nodePool string) bool {
	return applies(r.nodePools[nodePool], kcloudv1alpha1.AnnotationPowerPolicy, p.Name, p.Spec.Selection, p.Annotations)
}

// bounds reports whether any policy may bound what the NodePool opens.
func (r rules) bounds(nodePool string) bool {
	for i := range r.costs {
		if p := &r.costs[i]; (p.Spec.CostPerHourLimit != nil || p.Spec.SpotInstancePolicy != nil) && r.costApplies(p, nodePool) {
			return true
		}
	}
	for i := range r.powers {
		if p := &r.powers[i]; (p.Spec.MaxPowerUsage != nil || p.Spec.PowerSchedulingPolicy != nil) && r.powerApplies(p, nodePool) {
			return true
		}
	}
	return false
}

// room returns what a NodePool may open beside these machines. Of several policies the strictest bounds each.
func (r rules) room(nodePool string, machines []machine, now time.Time) room {
	out := unlimited()
	for i := range r.costs {
		if p := &r.costs[i]; r.costApplies(p, nodePool) {
			out.boundCost(p, r.under(machines, func(pool string) bool { return r.costApplies(p, pool) }))
		}
	}
	for i := range r.powers {
		if p := &r.powers[i]; r.powerApplies(p, nodePool) {
			out.boundPower(p, r.under(machines, func(pool string) bool { return r.powerApplies(p, pool) }), now)
		}
	}
	return out
}

// total is what machines cost and draw together.
type total struct {
	dollars, watts float64
	firm, spot     int // machines that run and stay, of other capacity types; spot machines that run, start or go
}

func (r rules) under(machines []machine, applies func(nodePool string) bool) total {
	t, known := total{}, map[string]bool{}
	for _, m := range machines {
		under, ok := known[m.nodePool]
		if !ok {
			under = applies(m.nodePool)
			known[m.nodePool] = under
		}
		if !under {
			continue
		}
		t.dollars, t.watts = t.dollars+m.dollars, t.watts+m.watts
		switch {
		case m.spot:
			t.spot++
		case !m.passing:
			t.firm++
		}
	}
	return t
}

func (r *room) boundCost(p *kcloudv1alpha1.CostPolicy, t total) {
	if limit := p.Spec.CostPerHourLimit; limit != nil {
		if left := *limit*(1+rounding) - t.dollars; left < r.dollars {
			r.dollars, r.dollarsBy = left, p.Name
		}
	}
	if s := p.Spec.SpotInstancePolicy; s != nil && r.spot && !allowsSpot(s, t) {
		r.spot, r.notBy = false, p.Name
	}
}

// allowsSpot reports whether one more spot machine keeps to the policy.
func allowsSpot(s *kcloudv1alpha1.SpotInstancePolicy, t total) bool {
	if s.Enabled != nil && !*s.Enabled {
		return false
	}
	return s.MaxSpotPercentage == nil || 100*(t.spot+1) <= int(*s.MaxSpotPercentage)*(t.firm+t.spot+1)
}

func (r *room) boundPower(p *kcloudv1alpha1.PowerPolicy, t total, now time.Time) {
	if limit := p.Spec.MaxPowerUsage; limit != nil {
		if left := *limit*(1+rounding) - t.watts; left < r.watts {
			r.watts, r.wattsBy = left, p.Name
		}
	}
	if s := p.Spec.PowerSchedulingPolicy; s != nil && s.PeakPowerAvoidance && r.closed == "" {
		if hours := peakAt(s.PeakPowerHours, now); hours != "" {
			r.closed = fmt.Sprintf("powerSchedulingPolicy of PowerPolicy %s opens no machine from %s UTC", p.Name, strings.Replace(hours, "-", " to ", 1))
		}
	}
}
