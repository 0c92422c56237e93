package resourcepressure_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/resourcepressure"
	"github.com/mainspring-rt/mainspring/pkg/test/mortal"
)

func TestPodsLeaveANodeUntilItIsFreeOfPressure(t *testing.T) {
	s := newStage(t, resourcepressure.ModeMigrate)
	s.node("a", 91, 40)
	s.node("b", 30, 30)
	s.node("c", 50, 30)
	for _, name := range []string{"one", "two", "three"} {
		s.pod(name, "a", "1")
	}
	c := s.process(nil)
	s.looks(c, 2)
	s.expect("after two readings", s.migrations()+s.condition("a"), "")
	s.looks(c, 1)
	s.expect("after three", s.migrations(), "one>b three>b") // 71 %, and the pressure ends below 75 %
	s.expect("condition", s.condition("a"), "True CPU")
	m := s.list()[0]
	if m.Spec.Trigger != v1alpha1.TriggerResourcePressure || m.Spec.PodUID == "" || !strings.Contains(m.Spec.Reason, "CPU is at 91.0 %") || !strings.Contains(m.Spec.Reason, "source prometheus") {
		t.Errorf("got %+v", m.Spec)
	}
	s.looks(c, 3) // they are on their way, though the readings do not show it
	s.expect("while they move", s.migrations(), "one>b three>b")
	s.arrives()
	s.cpu["a"], s.cpu["b"] = 71, 50
	s.looks(c, 1)
	s.expect("afterwards", s.migrations()+" "+s.condition("a"), "one>b three>b False NoPressure")
	if len(s.said("ResourcePressureBegan")) != 1 || len(s.said("ResourcePressureAnswered")) != 2 || len(s.said("ResourcePressureEnded")) != 1 {
		t.Errorf("told %q", s.told)
	}
}

func TestWhoReportsMovesNothing(t *testing.T) {
	s := newStage(t, resourcepressure.ModeReport)
	s.node("a", 95, 40)
	s.node("b", 30, 30)
	s.pod("one", "a", "1")
	s.looks(s.process(nil), 6)
	s.expect("migrations", s.migrations(), "")
	s.expect("condition", s.condition("a"), "True CPU")
	report := s.said("ResourcePressureWouldMigrate")
	if len(report) != 2 || !strings.Contains(report[0], "Would move pod "+s.namespace+"/one to node b; node a: CPU is at 95.0 %") {
		t.Errorf("told %q", s.told)
	}
}

// The least critical goes first, whatever else would relieve the node of more, and none goes to a node that would be above the
// threshold then, or on which the scheduler would not place it.
func TestWhoGoesAndWhereTo(t *testing.T) {
	s := newStage(t, resourcepressure.ModeMigrate)
	s.node("a", 100, 40)
	s.node("b", 70, 30)
	s.node("c", 76, 30)
	s.node("picky", 5, 5)
	for i := range 3 {
		s.refuses[fmt.Sprintf("small-%d>picky", i)] = true
		s.pod(fmt.Sprint("small-", i), "a", "900m")
	}
	s.mckube(s.pod("high", "a", "5"), mcv1.CriticalityHigh)
	s.pod("huge", "a", "9")
	s.looks(s.process(nil), 3)
	s.expect("migrations", s.migrations(), "small-0>b small-1>c") // at 79 % and 85 %; b would be at 88 % with another one
}

func TestNoMoreThanThreeLeaveInAnInterval(t *testing.T) {
	s := newStage(t, resourcepressure.ModeMigrate)
	s.options.PairCooldown = 0
	s.node("a", 100, 40)
	s.node("b", 10, 30)
	for i := range 8 {
		s.pod(fmt.Sprint("p", i), "a", "400m")
	}
	c := s.process(nil)
	s.looks(c, 3)
	s.expect("first interval", s.migrations(), "p0>b p1>b p2>b")
	s.looks(s.process(nil), 1) // another process: the condition says that the node is under pressure
	s.expect("second interval", s.migrations(), "p0>b p1>b p2>b p3>b p4>b p5>b")
	s.looks(c, 1) // 7 pods would do
	s.expect("third interval", s.migrations(), "p0>b p1>b p2>b p3>b p4>b p5>b p6>b")
}

// Killed before each write, and then another process goes on: it repeats nothing and leaves nothing out.
func TestKilledAtEachWrite(t *testing.T) {
	for at := 1; ; at++ {
		done := true // a filter may leave it out
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			s := newStage(t, resourcepressure.ModeMigrate)
			s.node("a", 97, 40)
			s.node("b", 10, 30)
			for i := range 5 {
				s.pod(fmt.Sprint("p", i), "a", "500m")
			}
			life := &mortal.Life{DieAt: at}
			first := s.process(life.Process(s.api))
			s.clock.Step(s.options.Interval)
			for range 3 {
				_, _ = first.Reconcile(t.Context()) // it may die
				s.clock.Step(s.options.Interval)
			}
			done = life.Writes < at
			s.clock.Step(-s.options.Interval + time.Second)
			second := s.process(nil)
			s.clock.Step(-s.options.Interval)
			s.looks(second, 4)
			s.expect("at the end", s.migrations(), "p0>b p1>b p2>b")
		})
		if done || t.Failed() {
			if at < 4 {
				t.Errorf("only %d writes", at)
			}
			return
		}
	}
}

func TestCooldowns(t *testing.T) {
	s := newStage(t, resourcepressure.ModeMigrate)
	s.node("a", 90, 40)
	s.node("b", 10, 30)
	same := func(p *corev1.Pod) { p.OwnerReferences[0].Name, p.OwnerReferences[0].UID = "set", "set" }
	s.pod("set-1", "a", "500m", same)
	s.pod("set-2", "a", "500m", same)
	c := s.process(nil)
	s.looks(c, 3)
	s.expect("one of a workload", s.migrations(), "set-1>b")
	s.arrives()
	s.looks(c, 10)
	s.expect("the workload rests, and so do the two nodes", s.migrations(), "set-1>b")
	if said := s.said("ResourcePressureUnanswered"); len(said) == 0 || !strings.Contains(said[0], "1 stay (WorkloadCooldown)") {
		t.Errorf("told %q", s.told)
	}
	s.pod("other", "a", "900m")
	s.looks(c, 1) // 6 minutes later: the pair may again
	s.expect("later", s.migrations(), "other>b set-1>b")
	s.clock.Step(time.Minute)
	s.arrives()
	// And none goes back at once.
	s.cpu["a"], s.cpu["b"] = 10, 95
	s.pod("back", "b", "900m")
	s.looks(c, 4)
	s.expect("back", s.migrations(), "other>b set-1>b")
	s.looks(c, 10)
	s.expect("back, after a while", s.migrations(), "back>a other>b set-1>b")
}

// What nobody knows is not pressure, and not the end of it.
func TestASourceThatIsAway(t *testing.T) {
	s := newStage(t, resourcepressure.ModeMigrate)
	s.node("a", 95, 40)
	s.node("b", 10, 30)
	s.node("dark", 0, 0)
	delete(s.cpu, "dark")
	s.pod("one", "a", "1", func(p *corev1.Pod) { p.Labels = map[string]string{"stays": "here"}; p.Namespace = s.namespace })
	c := s.process(nil)
	s.looks(c, 2)
	s.failing = errAway
	s.looks(c, 3)
	s.failing = nil
	s.looks(c, 2)
	s.expect("not three in a row", s.migrations()+s.condition("a"), "")
	s.stuck = true
	s.looks(c, 3) // the same reading, until it is too old
	s.expect("the same reading", s.migrations()+s.condition("a"), "")
	s.stuck, s.refuses["one>b"] = false, true
	s.looks(c, 3)
	s.expect("three in a row", s.condition("a"), "True CPU")
	s.failing = errAway
	s.looks(c, 1)
	s.expect("while nobody knows", s.condition("a"), "Unknown UsageUnknown")
	if load, known := s.latest.Load("a"); known {
		t.Errorf("others are told that %.2f of a node is in use, which nobody knows", load)
	}
	s.refuses = nil
	s.looks(c, 2)
	s.expect("nothing is done on what nobody knows", s.migrations(), "")
	s.failing = nil
	s.looks(c, 1)
	s.expect("known again", s.condition("a")+" "+s.migrations(), "True CPU one>b")
	if load, known := s.latest.Load("a"); load != 0.95 || !known {
		t.Errorf("others are told that %.2f of the node is in use, %t", load, known)
	}
}

// A source that is stale now and then tells of one pressure, whose condition has the last reading and the time when it began.
func TestAPressureOfAStaleSourceBeginsOnce(t *testing.T) {
	s := newStage(t, resourcepressure.ModeReport)
	s.node("a", 95, 40)
	c := s.process(nil)
	s.looks(c, 3)
	began := s.read("a").LastTransitionTime
	for i := range 5 {
		s.failing = errAway
		s.looks(c, 1)
		s.expect("while the usage is unknown", s.condition("a"), "Unknown UsageUnknown")
		s.failing, s.cpu["a"] = nil, 90+i
		s.looks(c, 1)
		s.expect("known again", s.condition("a"), "True CPU")
		if now := s.read("a"); !now.LastTransitionTime.Equal(&began) {
			t.Errorf("it began at %s, and now at %s", began, now.LastTransitionTime)
		}
	}
	if n := len(s.said("ResourcePressureBegan")); n != 1 {
		t.Errorf("the pressure began %d times", n)
	}
	s.cpu["a"] = 99
	for range 10 {
		s.looks(c, 1)
	}
	if text := s.read("a").Message; !strings.Contains(text, "99.0 %") {
		t.Errorf("after ten readings of 99 %% the condition says %q", text)
	}
	s.cpu["a"] = 10
	s.looks(c, 1)
	s.expect("over", s.condition("a"), "False NoPressure")
	if n := len(s.said("ResourcePressureEnded")); n != 1 {
		t.Errorf("the pressure ended %d times", n)
	}
}

// Policies have thresholds and intervals of their own, for the pods that they select.
func TestPoliciesHaveTheirOwnThresholds(t *testing.T) {
	s := newStage(t, resourcepressure.ModeMigrate)
	s.node("a", 65, 40)
	s.node("b", 10, 30)
	s.must(s.api.Create(t.Context(), &v1alpha1.MigrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, Spec: v1alpha1.MigrationPolicySpec{
		Selector:                         &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "soft"}},
		ResourcePressureThresholdPercent: ptr.To(int32(60)), Interval: &metav1.Duration{Duration: 10 * time.Second},
	}}))
	s.pod("firm", "a", "1")
	s.pod("soft", "a", "2", func(p *corev1.Pod) { p.Labels = map[string]string{"tier": "soft"} })
	s.pod("elsewhere", "b", "1")
	c := s.process(nil)
	for range 3 {
		s.clock.Step(10 * time.Second)
		result, err := c.Reconcile(t.Context())
		s.must(err)
		if result.RequeueAfter > 10*time.Second {
			t.Errorf("it looks again after %s", result.RequeueAfter)
		}
	}
	s.expect("after three of its intervals", s.migrations()+" "+s.condition("a")+s.condition("b"), "soft>b True CPU")
	s.must(s.api.DeleteAllOf(t.Context(), &v1alpha1.MigrationPolicy{}))
	s.looks(c, 1)
	s.expect("without the policy", s.condition("a"), "False NoPressure")
}

func TestPodsOfOtherNamespacesStay(t *testing.T) {
	s := newStage(t, resourcepressure.ModeMigrate)
	s.options.Namespaces = sets.New("elsewhere")
	s.node("a", 95, 40)
	s.node("b", 10, 30)
	s.pod("web", "a", "1")
	s.looks(s.process(nil), 3)
	s.expect("migrations", s.migrations(), "")
	if said := s.said("ResourcePressureUnanswered"); len(said) != 1 || !strings.Contains(said[0], "1 stay (NamespaceExcluded)") {
		t.Errorf("said %q", said)
	}
	s.options.Namespaces.Insert(s.namespace)
	s.looks(s.process(nil), 3)
	s.expect("migrations of a namespace that is named", s.migrations(), "web>b")
}

func TestWhoStaysAndWhy(t *testing.T) {
	s := newStage(t, resourcepressure.ModeMigrate)
	s.node("a", 95, 40)
	s.node("b", 10, 30)
	s.pod("daemon", "a", "1", func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" })
	s.pod("bare", "a", "1", func(p *corev1.Pod) { p.OwnerReferences = nil })
	s.pod("asked", "a", "1", func(p *corev1.Pod) { p.Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"} })
	s.pod("host", "a", "1", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}}}}
	})
	scratch := []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	s.pod("scratch", "a", "1", func(p *corev1.Pod) { p.Spec.Volumes = scratch })
	s.volume("local", &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}},
	}}}})
	claim := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
		}
	}
	s.pod("disk", "a", "1", claim("local"))
	s.mckube(s.pod("never", "a", "1"), mcv1.CriticalityLow, func(m *mcv1.McKube) { m.Spec.Migration = &mcv1.Migration{Policy: mcv1.MigrationNever} })
	s.mckube(s.pod("coreless", "a", "1"), mcv1.CriticalityLow) // no node has real-time cores
	s.standsStill(s.pod("still", "a", "1"))
	s.looks(s.process(nil), 3)
	s.expect("migrations", s.migrations(), "")
	want := "Not enough can leave the node to end its resource pressure: of its pods 1 find no node that takes them and stays at or below the threshold, 1 stay (DaemonSetPod), 1 stay (DoNotDisrupt), 1 stay (MigrationNever), 1 stay (NoOwner), 3 stay (NodeLocalVolume), 1 stay (StandsStill)"
	if said := s.said("ResourcePressureUnanswered"); len(said) != 1 || !strings.HasSuffix(said[0], want) {
		t.Errorf("told %q", s.told)
	}
	// A volume that the network has, scratch space that can be done without, and a bare pod that is moved with its state go.
	s.volume("shared", nil)
	s.pod("net", "a", "100m", claim("shared"))
	s.pod("tmp", "a", "200m", func(p *corev1.Pod) {
		p.Spec.Volumes = scratch
		p.Annotations = map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": "other,v"}
	})
	s.looks(s.process(nil), 1)
	s.expect("migrations", s.migrations(), "net>b tmp>b")
}

// standsStill has a pod stand still for a migration that is over.
func (s *stage) standsStill(p *corev1.Pod) {
	s.Helper()
	s.must(s.api.Create(s.Context(), &v1alpha1.NodeCheckpoint{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, Spec: v1alpha1.NodeCheckpointSpec{
		PodNamespace: p.Namespace, PodName: p.Name, PodUID: p.UID, Containers: []v1alpha1.CheckpointedContainer{{Name: "app"}},
		SourceNode: "a", TargetNode: "b", Stage: v1alpha1.StageRestore, Expires: metav1.NewTime(s.clock.Now()),
	}}))
}

// volume makes a claim that is bound to a volume of its own.
func (s *stage) volume(name string, affinity *corev1.VolumeNodeAffinity) {
	s.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-" + name}, Spec: corev1.PersistentVolumeSpec{
		Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, NodeAffinity: affinity,
		PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs", Path: "/"}},
	}}
	s.must(s.api.Create(s.Context(), v))
	s.Cleanup(func() { _ = s.api.Delete(s.Context(), v) })
	s.must(s.api.Create(s.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: v.Spec.AccessModes, VolumeName: v.Name, Resources: corev1.VolumeResourceRequirements{Requests: size},
	}}))
}
