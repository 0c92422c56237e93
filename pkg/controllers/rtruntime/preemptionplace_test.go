package rtruntime_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
)

// pods that keep pod high off node a, or do not.
type company struct {
	*siege
	high, low *corev1.Pod
}

// beside has a pod that stays run on a node.
func (c company) beside(node string, edits ...func(*corev1.Pod)) {
	c.Helper()
	p := statetest.On(statetest.Pod(c.namespace, "fixed", "", "app"), c.namespace+"-"+node)
	p.Spec.Containers[0].Image, p.Labels = "none", map[string]string{"app": "fixed"}
	for _, edit := range edits {
		edit(p)
	}
	status := p.Status
	c.must(c.API.Create(c.Context(), p))
	p.Status = status
	c.must(c.API.Status().Update(c.Context(), p))
}

// volume is a claim that is bound to one of a zone, and which the pod has.
func (c company) volume(zone string) {
	c.Helper()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: c.namespace + "-data"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk", VolumeHandle: "v"}}, StorageClassName: "disk",
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}},
		}}}},
	}}
	c.must(c.API.Create(c.Context(), pv))
	c.Cleanup(func() { apiserver.Empty(c, c.API, &corev1.PersistentVolumeClaimList{}, &corev1.PersistentVolumeList{}) })
	c.must(c.API.Create(c.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To("disk"), VolumeName: pv.Name,
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}))
	c.high.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
}

func listens(p *corev1.Pod) {
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080, Protocol: corev1.ProtocolTCP}}
}

// terms are about pods of an app in a topology.
func terms(app, topology string) []corev1.PodAffinityTerm {
	return []corev1.PodAffinityTerm{{TopologyKey: topology, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}
}

func shuns(app, topology string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms(app, topology)}}
	}
}

func seeks(app, topology string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms(app, topology)}}
	}
}

// spreads the pods of an app evenly.
func spreads(app, topology string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels["app"] = app
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: topology, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		}}
	}
}

// The controller evicts no pod for one that cannot run on the node whichever pods go. The victim is on the node where
// the pod that goes is what kept the pod off. Node a has the victim; b, c and d have no cores, b and c are in the zone
// of a.
func TestNoPodGoesWhereThePodCannotRunAnyway(t *testing.T) {
	const host, zone = corev1.LabelHostname, corev1.LabelTopologyZone
	for name, test := range map[string]struct {
		set  func(company)
		goes bool
	}{
		"nothing":               {func(company) {}, true},
		"port":                  {func(c company) { listens(c.high); c.beside("a", listens) }, false},
		"port-elsewhere":        {func(c company) { listens(c.high); c.beside("b", listens) }, true},
		"port-of-the-victim":    {func(c company) { listens(c.high); listens(c.low) }, true},
		"shuns-host":            {func(c company) { shuns("fixed", host)(c.high); c.beside("a") }, false},
		"shunned-host":          {func(c company) { c.high.Labels["app"] = "high"; c.beside("a", shuns("high", host)) }, false},
		"shuns-zone":            {func(c company) { shuns("fixed", zone)(c.high); c.beside("b") }, false},
		"shunned-zone":          {func(c company) { c.high.Labels["app"] = "high"; c.beside("b", shuns("high", zone)) }, false},
		"shuns-another-zone":    {func(c company) { shuns("fixed", zone)(c.high); c.beside("d") }, true},
		"shuns-the-victim":      {func(c company) { shuns("low", zone)(c.high) }, true},
		"shunned-by-the-victim": {func(c company) { c.high.Labels["app"] = "high"; shuns("high", zone)(c.low) }, true},
		"seeks-nobody":          {func(c company) { seeks("fixed", zone)(c.high); c.beside("d") }, false},
		"seeks-zone":            {func(c company) { seeks("fixed", zone)(c.high); c.beside("b") }, true},
		"seeks-the-victim":      {func(c company) { seeks("low", zone)(c.high) }, false},
		"spread-zone":           {func(c company) { spreads("fixed", zone)(c.high); c.beside("b") }, false},
		"spread-evenly":         {func(c company) { spreads("fixed", zone)(c.high); c.beside("d") }, true},
		"spread-the-victim":     {func(c company) { spreads("low", zone)(c.high) }, true},
		"spread-host":           {func(c company) { spreads("fixed", host)(c.high); c.beside("a") }, false},
		"volume-of-another":     {func(c company) { c.volume("zone-d") }, false},
		"volume-of-the-zone":    {func(c company) { c.volume("zone-a") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSiege(t, "place-"+name)
			s.node("a", 1)
			for _, other := range []string{"b", "c", "d"} {
				s.node(other, 0)
			}
			for node, zone := range map[string]string{"a": "zone-a", "b": "zone-a", "c": "zone-a", "d": "zone-d"} {
				s.label(node, corev1.LabelHostname, s.namespace+"-"+node)
				s.label(node, corev1.LabelTopologyZone, zone)
			}
			s.mckube("high", mcv1.CriticalityHigh, 80)
			c := company{siege: s, high: s.shape("high"), low: s.shape("low")}
			test.set(c)
			s.runs(c.low, "a", "Low", 80, 0)
			s.must(s.API.Create(t.Context(), c.high))
			unschedulable(c.high, s.clock.Now().Add(-10*time.Second))
			s.must(s.API.Status().Update(t.Context(), c.high))
			b := s.start(preempting)
			for range 12 {
				b.look()
				b.act("high")
				s.clock.Step(500 * time.Millisecond)
			}
			if want := map[bool][]string{true: {"low"}}[test.goes]; !slices.Equal(s.evicted, want) {
				t.Errorf("evicted %v, want %v", s.evicted, want)
			}
		})
	}
}

// The pod that costs least by the cores alone may leave behind another one that keeps the pod off. Then that other one
// goes, alone if its core will do. Pod cheap is on core 0 with pod small, pod dear on core 1.
func TestWhoKeepsThePodOffGoesThoughOthersCostLess(t *testing.T) {
	for name, test := range map[string]struct {
		set  func(c company, dear, small *corev1.Pod)
		goes []string
	}{
		"nothing":         {func(company, *corev1.Pod, *corev1.Pod) {}, []string{"cheap"}},
		"shuns-the-dear":  {func(c company, _, _ *corev1.Pod) { shuns("dear", corev1.LabelHostname)(c.high) }, []string{"dear"}},
		"port-of-dear":    {func(c company, dear, _ *corev1.Pod) { listens(c.high); listens(dear) }, []string{"dear"}},
		"port-of-small":   {func(c company, _, small *corev1.Pod) { listens(c.high); listens(small) }, []string{"cheap", "small"}},
		"port-of-another": {func(c company, _, _ *corev1.Pod) { listens(c.high); c.beside("a", listens) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSiege(t, "wider-"+name)
			s.node("a", 2)
			s.label("a", corev1.LabelHostname, s.namespace+"-a")
			s.mckube("high", mcv1.CriticalityHigh, 50)
			c := company{siege: s, high: s.shape("high"), low: s.shape("cheap")}
			dear, small := s.shape("dear"), s.shape("small")
			test.set(c, dear, small)
			s.runs(c.low, "a", "Low", 60, 0)
			s.runs(small, "a", "Low", 10, 0)
			s.runs(dear, "a", "Low", 85, 1)
			s.must(s.API.Create(t.Context(), c.high))
			unschedulable(c.high, s.clock.Now().Add(-10*time.Second))
			s.must(s.API.Status().Update(t.Context(), c.high))
			b := s.start(preempting)
			for range 12 {
				b.look()
				b.act("high")
				s.clock.Step(500 * time.Millisecond)
			}
			slices.Sort(s.evicted)
			if !slices.Equal(s.evicted, test.goes) {
				t.Errorf("evicted %v, want %v", s.evicted, test.goes)
			}
		})
	}
}

// What keeps the pod off may come when the plan is on record: the controller has evicted no pod by then, and evicts
// none.
func TestWhatComesInBetweenIsSeenBeforeAnyPodGoes(t *testing.T) {
	s := newSiege(t, "place-between")
	s.node("a", 1)
	s.mckube("high", mcv1.CriticalityHigh, 80)
	c := company{siege: s, high: s.shape("high"), low: s.run("low", "a", "Low", 80, 0)}
	shuns("fixed", corev1.LabelHostname)(c.high)
	s.must(s.API.Create(t.Context(), c.high))
	unschedulable(c.high, s.clock.Now().Add(-10*time.Second))
	s.must(s.API.Status().Update(t.Context(), c.high))
	b := s.start(preempting)
	b.act("high")
	if s.plan("high") == nil || len(s.evicted) > 0 {
		t.Fatalf("the plan is not on record, or %v were evicted before it was", s.evicted)
	}
	c.beside("a")
	for range 12 {
		b.look()
		b.act("high")
		s.clock.Step(500 * time.Millisecond)
	}
	if len(s.evicted) > 0 {
		t.Errorf("evicted %v, though another came that keeps the pod off", s.evicted)
	}
	if said := s.told.saying("PreemptionFinished"); !strings.Contains(said, "even without the victims: pod place-between/high: its requests, tolerations, affinity") {
		t.Errorf("said %q", said)
	}
}
