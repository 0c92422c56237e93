package limits_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/limits"
	"github.com/mainspring-rt/mainspring/pkg/test"
)

// A plan sees what is left, and which NodePool is under which policy.
func TestPlansSeeWhatIsLeft(t *testing.T) {
	a, b, named, other := pool("a"), pool("b", kcloudv1alpha1.AnnotationCostPolicy, ""), pool("named", kcloudv1alpha1.AnnotationCostPolicy, "team"), pool("other", kcloudv1alpha1.AnnotationCostPolicy, "gone")
	w := newWorld(t, a, b, named, other)
	before, err := w.GetInstanceTypes(t.Context(), a)
	if err != nil || !slices.Equal(before, w.cloud.types) {
		t.Fatalf("without policies: %v, %v", before, err)
	}
	w.create(test.CostPolicy("all", costsAtMost(3)), test.CostPolicy("team", costsAtMost(1.5), func(p *kcloudv1alpha1.CostPolicy) {
		p.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}
	}))
	w.expectOffered(a, "m2/on-demand m2/spot m4/on-demand m4/spot m8/spot")
	w.expectOffered(b, everything)
	w.expectOffered(named, "m2/on-demand m2/spot m4/spot") // m8 as spot costs 1.6
	w.expectOffered(other, everything)
	if len(w.events) != 0 {
		t.Errorf("some machines may still be opened: %+v", w.events)
	}
	first, _ := w.GetInstanceTypes(t.Context(), a)
	if second, _ := w.GetInstanceTypes(t.Context(), a); !slices.Equal(first, second) {
		t.Error("the same answer has other pointers")
	}
	for _, it := range w.cloud.types {
		for _, o := range it.Offerings {
			if !o.Available {
				t.Errorf("an offering of the provider's own %s was changed", it.Name)
			}
		}
	}
	if first[0] != w.cloud.types[0] {
		t.Error("a type of which nothing is withdrawn was copied")
	}
}

// A NodePool that allows only machines for which nothing is left is told so, though there is something left for others.
func TestAPolicyLeavesNothingThatTheNodePoolAllows(t *testing.T) {
	for _, c := range []struct {
		types  []string
		events int
	}{{[]string{"m8"}, 1}, {[]string{"m4", "m8"}, 0}} {
		a := pool("a")
		a.Spec.Template.Spec.Requirements = []karpenterv1.NodeSelectorRequirementWithMinValues{
			{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: c.types},
			{Key: karpenterv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"spot"}},
		}
		w := newWorld(t, a, test.CostPolicy("all", costsAtMost(1.5)))
		w.expectOffered(a, "m2/on-demand m2/spot m4/spot") // m8 as spot costs 1.6
		if len(w.events) != c.events {
			t.Errorf("%v: %d Events, want %d: %+v", c.types, len(w.events), c.events, w.events)
		}
	}
}

// A NodeClaim that is not launched yet counts in the next plan.
func TestPlansCountWhatIsPlanned(t *testing.T) {
	a := pool("a")
	w := newWorld(t, a, test.CostPolicy("all", costsAtMost(1.3)))
	w.expectOffered(a, "m2/on-demand m2/spot m4/spot")
	w.claim("planned", "a") // an m2 as spot for 0.4, at least
	w.clock.SetTime(w.clock.Now().Add(2 * time.Second))
	w.expectOffered(a, "m2/spot m4/spot")
}

func TestSpotKeepsToItsShare(t *testing.T) {
	a := pool("a")
	w := newWorld(t, a, test.CostPolicy("all", func(p *kcloudv1alpha1.CostPolicy) {
		p.Spec.SpotInstancePolicy = &kcloudv1alpha1.SpotInstancePolicy{MaxSpotPercentage: ptr.To[int32](60)}
	}))
	w.expectOffered(a, "m2/on-demand m4/on-demand m8/on-demand") // the first would be 100 %
	for i := range 40 {
		if err := w.launch(fmt.Sprint(i), "a"); err != nil {
			t.Fatal(err)
		}
		spot := 0
		for _, made := range w.cloud.launched {
			if made.Labels[karpenterv1.CapacityTypeLabelKey] == "spot" {
				spot++
			}
		}
		if 100*spot > 60*len(w.cloud.launched) {
			t.Fatalf("%d of %d are spot machines", spot, len(w.cloud.launched))
		}
	}
	p := &kcloudv1alpha1.CostPolicy{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: "all"}, p); err != nil {
		t.Fatal(err)
	}
	p.Spec.SpotInstancePolicy = &kcloudv1alpha1.SpotInstancePolicy{Enabled: ptr.To(false)}
	if err := w.client.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	w.clock.SetTime(w.clock.Now().Add(2 * time.Second))
	w.expectOffered(a, "m2/on-demand m4/on-demand m8/on-demand")
}

func TestPeakHoursCloseNodePools(t *testing.T) {
	a := pool("a")
	w := newWorld(t, a, test.PowerPolicy("plant", func(p *kcloudv1alpha1.PowerPolicy) {
		p.Spec.PowerSchedulingPolicy = &kcloudv1alpha1.PowerSchedulingPolicy{PeakPowerAvoidance: true, PeakPowerHours: []string{"09:00-11:30", "22:00-06:00"}}
	}))
	for at, open := range map[string]bool{"08:59": true, "09:00": false, "11:29": false, "11:30": true, "21:59": true, "22:00": false, "00:00": false, "05:59": false, "06:00": true} {
		now, err := time.Parse(time.DateTime, "2026-11-28 "+at+":00")
		if err != nil {
			t.Fatal(err)
		}
		w.clock.SetTime(now)
		want := ""
		if open {
			want = everything
		}
		w.expectOffered(a, want)
	}
	w.clock.SetTime(time.Date(2026, 11, 28, 23, 0, 0, 0, time.UTC))
	if len(w.events) == 0 || w.events[0].Reason != limits.ReasonPolicyLimit || !strings.Contains(w.events[0].Message, "PowerPolicy plant opens no machine") {
		t.Errorf("events %+v", w.events)
	}
	if err := w.launch("x", "a"); !cloudprovider.IsInsufficientCapacityError(err) || !strings.Contains(err.Error(), "PowerPolicy plant opens no machine from 22:00 to 06:00 UTC") {
		t.Errorf("%v", err)
	}
}

// Consolidation is told at once, and again at each edge of peak hours.
func TestConsolidationIsToldOfChanges(t *testing.T) {
	w := newWorld(t, test.PowerPolicy("plant", func(p *kcloudv1alpha1.PowerPolicy) {
		p.Spec.PowerSchedulingPolicy = &kcloudv1alpha1.PowerSchedulingPolicy{PeakPowerAvoidance: true, PeakPowerHours: []string{"09:00-11:30", "13:00-24:00"}}
	}))
	told := counter(0)
	c := &limits.Changes{Client: w.client, Cluster: &told, Clock: w.clock}
	for at, want := range map[string]time.Duration{"12:00": time.Hour, "08:30": 30 * time.Minute, "09:00": 150 * time.Minute, "23:59": time.Minute} {
		now, err := time.Parse(time.DateTime, "2026-11-28 "+at+":00")
		if err != nil {
			t.Fatal(err)
		}
		w.clock.SetTime(now)
		result, err := c.Reconcile(t.Context(), reconcile.Request{})
		if err != nil || result.RequeueAfter != want {
			t.Errorf("at %s again after %s, %v, want %s", at, result.RequeueAfter, err, want)
		}
	}
	if told != 4 {
		t.Errorf("told %d times", told)
	}
}

type counter int

func (c *counter) MarkUnconsolidated() time.Time { *c++; return time.Time{} }

func TestSuspendedPoliciesBoundNothing(t *testing.T) {
	a := pool("a")
	w := newWorld(t, a, test.CostPolicy("all", costsAtMost(0.1), func(p *kcloudv1alpha1.CostPolicy) {
		p.Annotations = map[string]string{kcloudv1alpha1.AnnotationDisabled: "true"}
	}))
	w.expectOffered(a, everything)
}

// Of two policies the strictest bounds.
func TestTheStrictestPolicyBounds(t *testing.T) {
	a := pool("a")
	w := newWorld(t, a, test.CostPolicy("wide", costsAtMost(100)), test.CostPolicy("narrow", costsAtMost(1)), test.PowerPolicy("plant", drawsAtMost(450)))
	w.expectOffered(a, "m2/on-demand m2/spot m4/spot")
	if err := w.launch("x", "a"); err != nil {
		t.Fatal(err)
	}
	if cost, watts, _ := w.cloud.sum(t); cost > 1 || watts > 450 {
		t.Errorf("launched for %v USD and %v W", cost, watts)
	}
}

// Machines of a NodePool that the provider does not answer for cost what they did.
func TestMachinesOfANodePoolThatIsNotAnsweredForCount(t *testing.T) {
	a, b := pool("a"), pool("b")
	w := newWorld(t, a, b, test.CostPolicy("all", costsAtMost(1)))
	for _, it := range w.cloud.types[1:] {
		for _, o := range it.Offerings {
			o.Available = false
		}
	}
	w.cloud.types[0].Offerings[1].Available = false // of 1 USD on demand is left
	if err := w.launch("x", "b"); err != nil {
		t.Fatal(err)
	}
	c := &karpenterv1.NodeClaim{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: "x"}, c); err != nil {
		t.Fatal(err)
	}
	c.Annotations = nil // the price is known from its offering alone
	if err := w.client.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	w.expectOffered(a, "")
	w.cloud.silent = "b"
	w.clock.SetTime(w.clock.Now().Add(2 * time.Second))
	w.expectOffered(a, "")
	if err := w.launch("y", "a"); !cloudprovider.IsInsufficientCapacityError(err) {
		t.Errorf("%v", err)
	}
}
