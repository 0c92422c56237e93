package limits_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/limits"
	"github.com/mainspring-rt/mainspring/pkg/test"
)

// Many launches at once never exceed a limit, whatever of what they may take the cloud gives them, and they use what the limit leaves.
func TestLaunchesAtOnceKeepLimits(t *testing.T) {
	const claims, dollars, watts = 60, 21.5, 4000.0
	w := newWorld(t, pool("a"), pool("b"), pool("free", kcloudv1alpha1.AnnotationCostPolicy, "", kcloudv1alpha1.AnnotationPowerPolicy, ""),
		test.CostPolicy("all", costsAtMost(dollars), func(p *kcloudv1alpha1.CostPolicy) {
			p.Spec.SpotInstancePolicy = &kcloudv1alpha1.SpotInstancePolicy{MaxSpotPercentage: ptr.To[int32](50)}
		}), test.PowerPolicy("all", drawsAtMost(watts)))
	list := make([]*karpenterv1.NodeClaim, claims)
	for i := range list {
		list[i] = w.claim(fmt.Sprint("c", i), []string{"a", "b"}[i%2])
	}
	// No launch ends before each has either begun or been refused.
	var begun, group sync.WaitGroup
	begun.Add(claims)
	w.cloud.enter = func() { begun.Done(); begun.Wait() }
	for _, c := range list {
		group.Go(func() {
			_, err := w.Create(t.Context(), c)
			if err == nil {
				return
			}
			begun.Done()
			if !cloudprovider.IsInsufficientCapacityError(err) {
				t.Error(err)
			}
		})
	}
	group.Wait()
	w.cloud.enter = nil
	cost, power, spot := w.cloud.sum(t)
	t.Logf("%d machines of %d at once for %.1f USD per hour and %.0f W, %d of them spot", len(w.cloud.launched), claims, cost, power, spot)
	check := func() {
		t.Helper()
		if cost > dollars+1e-6 || power > watts+1e-6 || spot*2 > len(w.cloud.launched) {
			t.Error("a limit is exceeded")
		}
	}
	check()
	for _, c := range list {
		if made := w.cloud.launched[c.UID]; made != nil {
			if err := w.record(c, made); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 60 { // what was kept for the dearest is there once it is known what was launched
		if err := w.launch(fmt.Sprint("later", i), "b"); err != nil && !cloudprovider.IsInsufficientCapacityError(err) {
			t.Error(err)
		}
	}
	cost, power, spot = w.cloud.sum(t)
	t.Logf("%d machines in the end for %.1f USD per hour and %.0f W, %d of them spot", len(w.cloud.launched), cost, power, spot)
	if dollars-cost >= 1 && watts-power >= 200 {
		t.Error("a machine for 1 USD and 200 W would still have its room")
	}
	check()
	free := w.claim("free", "free")
	if _, err := w.Create(t.Context(), free); err != nil {
		t.Errorf("a NodePool of no policy: %v", err)
	}
	_, err := w.Create(t.Context(), w.claim("late", "a"))
	if err == nil || !strings.Contains(err.Error(), "NodePool a may not open") || !strings.Contains(err.Error(), "Policy all leaves") {
		t.Errorf("%v, want an error that names NodePool and policy", err)
	}
}

// Machines whose launch no process has recorded count, also for a replica that has stood by since long before, and
// whatever has become of their offerings. Where the provider knows whose they are, each NodeClaim gets its own, and
// none is refused.
func TestLaunchesThatADeathLeftOpenCount(t *testing.T) {
	const open = 4
	for name, names := range map[string]bool{"with names": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, pool("a"), test.PowerPolicy("all", drawsAtMost(1600)))
			w.cloud.names = names
			standby := limits.Decorate(w.cloud, w.client, w, w.clock)
			w.clock.SetTime(w.clock.Now().Add(time.Hour))
			var lost []*karpenterv1.NodeClaim
			for i := range open {
				c := w.claim(fmt.Sprint("lost", i), "a")
				if _, err := w.Create(t.Context(), c); err != nil {
					t.Fatal(err)
				}
				lost = append(lost, c)
			}
			_, before, _ := w.cloud.sum(t)
			w.Provider = standby
			for _, it := range w.cloud.types {
				for _, o := range it.Offerings {
					o.Available = false
				}
			}
			w.cloud.types = append(w.cloud.types, machine("m16", 16, 8))
			if err := w.launch("next", "a"); !cloudprovider.IsInsufficientCapacityError(err) {
				t.Errorf("%v, beside %v W of machines that are not recorded", err, before)
			}
			for _, c := range lost {
				made, err := w.Create(t.Context(), c)
				if names && (err != nil || made != w.cloud.launched[c.UID]) {
					t.Errorf("%s: %v, and its machine is there", c.Name, err)
				}
				if made != nil {
					if err := w.record(c, made); err != nil {
						t.Fatal(err)
					}
				}
			}
			if _, watts, _ := w.cloud.sum(t); watts != before {
				t.Errorf("%v W, want %v", watts, before)
			}
			// They are gone from the cloud, and their NodeClaims, too: there is room again.
			for _, c := range lost {
				if err := w.client.Delete(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			}
			clear(w.cloud.launched)
			w.clock.SetTime(w.clock.Now().Add(time.Minute))
			w.expectOffered(pool("a"), "m16/on-demand m16/spot")
		})
	}
}

// A plan that has listed the NodeClaims before one came does not give its reservation back.
func TestAPlanThatIsLateForgetsNoReservation(t *testing.T) {
	a := pool("a")
	w := newWorld(t, a, test.PowerPolicy("all", drawsAtMost(800)))
	w.cloud.types = w.cloud.types[2:] // 800 W each
	h := &holding{Client: w.client}
	w.Provider = limits.Decorate(w.cloud, h, w, w.clock)
	if err := w.launch("gone", "a"); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Delete(t.Context(), &karpenterv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}); err != nil {
		t.Fatal(err)
	}
	clear(w.cloud.launched)
	h.listed, h.goOn = make(chan struct{}), make(chan struct{})
	listed, goOn, planned := h.listed, h.goOn, make(chan struct{})
	go func() {
		defer close(planned)
		_, _ = w.GetInstanceTypes(t.Context(), a)
	}()
	<-listed
	if _, err := w.Create(t.Context(), w.claim("first", "a")); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	<-planned
	if _, err := w.Create(t.Context(), w.claim("second", "a")); !cloudprovider.IsInsufficientCapacityError(err) {
		t.Errorf("%v, beside a machine that takes all", err)
	}
}

// Machines of one type that differ count as the one that draws most.
func TestMachinesOfATypeMayDiffer(t *testing.T) {
	w := newWorld(t, pool("a"), test.PowerPolicy("all", drawsAtMost(300)))
	w.cloud.types = []*cloudprovider.InstanceType{machine("m2", 2, 1)}
	w.cloud.types[0].Requirements[mckubev1alpha1.LabelWattsMax] = scheduling.NewRequirement(mckubev1alpha1.LabelWattsMax, corev1.NodeSelectorOpIn, "200", "400")
	if err := w.launch("x", "a"); !cloudprovider.IsInsufficientCapacityError(err) {
		t.Errorf("%v, though the machine may draw 400 W", err)
	}
}

// A launch that may become a small machine keeps the room of no more than twice of that, and many start at once.
func TestLaunchesAtOnceAreNotStarved(t *testing.T) {
	const claims = 20
	w := newWorld(t, pool("a"), test.PowerPolicy("all", drawsAtMost(2*200*claims)))
	w.cloud.types = append(w.cloud.types, machine("m40", 40, 20))
	var begun, group sync.WaitGroup
	begun.Add(claims)
	w.cloud.enter = func() { begun.Done(); begun.Wait() }
	for i := range claims {
		c := w.claim(fmt.Sprint(i), "a")
		group.Go(func() {
			if _, err := w.Create(t.Context(), c); err != nil {
				t.Error(err)
				begun.Done()
			}
		})
	}
	group.Wait()
}

// What is too small for the NodeClaim is not left to it, and its minimal number of types is kept or the policy named.
func TestNodeClaimsAreLeftWhatTheyNeed(t *testing.T) {
	w := newWorld(t, pool("a"), test.PowerPolicy("all", drawsAtMost(500)))
	c := w.claim("large", "a")
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("6")}
	if _, err := w.Create(t.Context(), c); !cloudprovider.IsInsufficientCapacityError(err) || !strings.Contains(err.Error(), "PowerPolicy all") {
		t.Errorf("%v", err)
	}
	c = w.claim("two-types", "a")
	c.Spec.Requirements = []karpenterv1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpExists, MinValues: ptr.To(3)}}
	if _, err := w.Create(t.Context(), c); !cloudprovider.IsInsufficientCapacityError(err) || !strings.Contains(err.Error(), "PowerPolicy all") {
		t.Errorf("%v", err)
	}
	c.Spec.Requirements[0].MinValues = ptr.To(2)
	if _, err := w.Create(t.Context(), c); err != nil {
		t.Error(err)
	}
}

// A NodePool that is not there leaves open which limits hold.
func TestNodeClaimsOfNoNodePoolWait(t *testing.T) {
	w := newWorld(t, test.PowerPolicy("all", drawsAtMost(500)))
	if _, err := w.Create(t.Context(), w.claim("x", "gone")); err == nil || cloudprovider.IsInsufficientCapacityError(err) || !strings.Contains(err.Error(), `NodePool "gone" is not there`) {
		t.Errorf("%v", err)
	}
}

// What the cloud had not is given back; what may be there after an error is not.
func TestReservationsAreGivenBack(t *testing.T) {
	w := newWorld(t, pool("a"), test.CostPolicy("all", costsAtMost(1)))
	w.cloud.err = cloudprovider.NewInsufficientCapacityError(errors.New("sold out"))
	if err := w.launch("x", "a"); !cloudprovider.IsInsufficientCapacityError(err) {
		t.Fatal(err)
	}
	w.cloud.err, w.cloud.lost = errors.New("timeout"), true
	open := w.claim("open", "a")
	if _, err := w.Create(t.Context(), open); err == nil {
		t.Fatal("no error")
	}
	w.cloud.err, w.cloud.lost = nil, false
	for _, it := range w.cloud.types { // sold out since
		for _, o := range it.Offerings {
			o.Available = false
		}
	}
	if err := w.launch("y", "a"); !cloudprovider.IsInsufficientCapacityError(err) {
		t.Errorf("%v, while another launch may have made a machine", err)
	}
	if made, err := w.Create(t.Context(), open); err != nil || made != w.cloud.launched["open"] {
		t.Errorf("it finds its own room taken: %v", err)
	}
	for _, it := range w.cloud.types {
		for _, o := range it.Offerings {
			o.Available = true
		}
	}
	clear(w.cloud.launched)
	if err := w.client.Delete(t.Context(), open); err != nil {
		t.Fatal(err)
	}
	if err := w.launch("z", "a"); err != nil {
		t.Errorf("the NodeClaim is gone: %v", err)
	}
}

// What a plan offers, a launch takes: where only one capacity type has room, it is left that one.
func TestLaunchesTakeWhatPlansOffer(t *testing.T) {
	a := pool("a")
	w := newWorld(t, a, test.CostPolicy("all", costsAtMost(0.5)))
	w.expectOffered(a, "m2/spot")
	if err := w.launch("x", "a"); err != nil {
		t.Fatal(err)
	}
	if _, _, spot := w.cloud.sum(t); spot != 1 {
		t.Errorf("launched %v", w.cloud.launched["x"])
	}
	// A zone that is dearer takes the offering of the cheaper one with it: a launch may take either.
	w = newWorld(t, a, test.CostPolicy("all", costsAtMost(0.5)))
	dear := *w.cloud.types[0].Offerings[1]
	dear.Price = 0.6
	dear.Requirements = scheduling.NewRequirements(scheduling.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, "dear"),
		scheduling.NewRequirement(karpenterv1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, "spot"))
	w.cloud.types[0].Offerings = append(w.cloud.types[0].Offerings, &dear)
	w.expectOffered(a, "")
}

// The machine of a Node that joined by hand runs, whatever the limits say.
func TestMachinesThatRunAreAdopted(t *testing.T) {
	w := newWorld(t, pool("a"), test.PowerPolicy("all", drawsAtMost(1)))
	c := w.claim("x", "a")
	c.Annotations = map[string]string{mckubev1alpha1.AnnotationAdopt: "edge-1"}
	if _, err := w.Create(t.Context(), c); err != nil {
		t.Error(err)
	}
}

// A launch that is tried again after an error keeps to what the policies say now.
func TestLaunchesThatAreTriedAgainKeepTodaysLimits(t *testing.T) {
	w := newWorld(t, pool("a"), test.CostPolicy("all", costsAtMost(10)))
	c := w.claim("x", "a")
	w.cloud.err = errors.New("throttled")
	if _, err := w.Create(t.Context(), c); err == nil {
		t.Fatal("no error")
	}
	w.cloud.err = nil
	p := &kcloudv1alpha1.CostPolicy{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: "all"}, p); err != nil {
		t.Fatal(err)
	}
	costsAtMost(0.1)(p)
	if err := w.client.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Create(t.Context(), c); !cloudprovider.IsInsufficientCapacityError(err) {
		t.Errorf("%v", err)
	}

	// Where the cloud has made the machine before the error, it is not left behind.
	costsAtMost(10)(p)
	if err := w.client.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	c = w.claim("y", "a")
	w.cloud.err, w.cloud.lost, w.cloud.names = errors.New("timeout"), true, true
	if _, err := w.Create(t.Context(), c); err == nil {
		t.Fatal("no error")
	}
	w.cloud.err, w.cloud.lost = nil, false
	costsAtMost(0.1)(p)
	if err := w.client.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if made, err := w.Create(t.Context(), c); err != nil || made != w.cloud.launched["y"] {
		t.Errorf("%v, %v", made, err)
	}
}

// A NodeClaim that goes after an error may leave a machine behind, which counts.
func TestMachinesOfNodeClaimsThatWentCount(t *testing.T) {
	w := newWorld(t, pool("a"), test.CostPolicy("all", costsAtMost(1)))
	c := w.claim("x", "a")
	w.cloud.err, w.cloud.lost = errors.New("timeout"), true
	if _, err := w.Create(t.Context(), c); err == nil {
		t.Fatal("no error")
	}
	w.cloud.err, w.cloud.lost = nil, false
	if err := w.client.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	w.cloud.launched["x"].Annotations[mckubev1alpha1.AnnotationPricePerHour] = "1"
	w.cloud.launched["x"].Labels[corev1.LabelInstanceTypeStable] = "gone"
	if err := w.launch("y", "a"); err != nil && !cloudprovider.IsInsufficientCapacityError(err) {
		t.Fatal(err)
	} // the first that finds that x has gone
	if cost, _, _ := w.cloud.sum(t); cost > 1 {
		t.Errorf("machines for %v USD", cost)
	}
}

// A NodePool under no policy does not wait for launches of others.
func TestNodePoolsOfNoPolicyDoNotWait(t *testing.T) {
	w := newWorld(t, pool("a"), pool("free", kcloudv1alpha1.AnnotationCostPolicy, ""), test.CostPolicy("all", costsAtMost(100)))
	h := &holding{Client: w.client, listed: make(chan struct{}), goOn: make(chan struct{})}
	w.Provider = limits.Decorate(w.cloud, h, w, w.clock)
	bounded, done := w.claim("x", "a"), make(chan struct{})
	listed, goOn := h.listed, h.goOn
	go func() {
		defer close(done)
		if _, err := w.Create(t.Context(), bounded); err != nil {
			t.Error(err)
		}
	}()
	<-listed // it holds the lock
	if _, err := w.Create(t.Context(), w.claim("y", "free")); err != nil {
		t.Error(err)
	}
	close(goOn)
	<-done
}
