package resourcepressure

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/usage"
)

// machine has 10 cores and 10Gi, and is ready.
func machine(name string) *corev1.Node {
	all := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10"), corev1.ResourceMemory: resource.MustParse("10Gi")}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}, Status: corev1.NodeStatus{
		Capacity: all, Allocatable: all, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
}

func TestTargets(t *testing.T) {
	t.Parallel()
	tainted, elsewhere := machine("tainted"), machine("elsewhere")
	tainted.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
	soft := machine("soft")
	soft.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectPreferNoSchedule}}
	elsewhere.Labels["zone"] = "2"
	rooms := []*room{
		{Node: machine("a"), CPU: 0, Memory: 0}, // its own
		{Node: machine("full"), CPU: 0.751, Memory: 0.1}, {Node: machine("exact"), CPU: 0.75, Memory: 0.75}, {Node: machine("memory"), CPU: 0.1, Memory: 0.8},
		{Node: machine("most"), CPU: 0.2, Memory: 0.1}, {Node: machine("equal"), CPU: 0.1, Memory: 0.2}, {Node: tainted}, {Node: soft, CPU: 0.6, Memory: 0.6}, {Node: elsewhere},
	}
	c := mover("p")
	c.Amount = usage.Amount{CPU: 1, Memory: 1 << 30}
	c.Pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpDoesNotExist}}}},
	}}}
	var got []string
	for _, r := range preferred(c, rooms, usage.SourceMetricsAPI, 0.85) {
		got = append(got, r.Node.Name)
	}
	if want := "equal most soft exact"; strings.Join(got, " ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, " "), want)
	}
}

// A pod that an earlier migration has bound to its node may go on; one that its user has bound may not.
func TestAPodThatWasMigratedMayBeAgain(t *testing.T) {
	t.Parallel()
	byHand, bound := mover("p"), mover("p")
	byHand.Pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "a"}
	v1alpha1.Pin(bound.Pod, "a")
	rooms := []*room{{Node: machine("b")}}
	if len(preferred(byHand, rooms, usage.SourceMetricsAPI, 0.85)) != 0 {
		t.Error("it goes, though it was bound by hand")
	}
	got := preferred(bound, rooms, usage.SourceMetricsAPI, 0.85)
	if len(got) != 1 {
		t.Fatal("it stays for ever")
	}
	got[0].take(usage.SourceMetricsAPI, bound)
	if got[0].Coming[0].Spec.Affinity != nil || bound.Pod.Spec.Affinity == nil {
		t.Errorf("%v of %v", got[0].Coming[0].Spec.Affinity, bound.Pod.Spec.Affinity)
	}
}

// Whatever is taken one after another, no node is above the limit afterwards that was not before.
func TestTargetsStayBelowTheLimit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var rooms []*room
		for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
			rooms = append(rooms, &room{Node: machine(fmt.Sprint("n", i)), CPU: rapid.Float64Range(0, 1.2).Draw(t, "cpu"), Memory: rapid.Float64Range(0, 1.2).Draw(t, "memory")})
		}
		for range rapid.IntRange(1, 10).Draw(t, "pods") {
			c := mover("p")
			c.Amount = usage.Amount{CPU: rapid.Float64Range(0, 5).Draw(t, "cores"), Memory: rapid.Float64Range(0, 5<<30).Draw(t, "bytes")}
			if list := preferred(c, rooms, usage.SourceInflux, 0.85); len(list) > 0 {
				list[0].take(usage.SourceInflux, c)
				if r := list[0]; r.CPU > 0.85 || r.Memory > 0.85 {
					t.Fatalf("node %s is at %v and %v", r.Node.Name, r.CPU, r.Memory)
				}
			}
		}
	})
}

func TestOpenNodes(t *testing.T) {
	t.Parallel()
	known := usage.Usage{CPU: reading(0, 0.5), Memory: reading(0, 0.5)}
	now := metav1.NewTime(begin)
	for name, c := range map[string]struct {
		change  func(*corev1.Node)
		u       usage.Usage
		pressed bool
		want    bool
	}{
		"open":      {func(*corev1.Node) {}, known, false, true},
		"pressed":   {func(*corev1.Node) {}, known, true, false},
		"cordoned":  {func(n *corev1.Node) { n.Spec.Unschedulable = true }, known, false, false},
		"going":     {func(n *corev1.Node) { n.DeletionTimestamp = &now }, known, false, false},
		"not ready": {func(n *corev1.Node) { n.Status.Conditions = nil }, known, false, false},
		"unknown":   {func(*corev1.Node) {}, usage.Usage{CPU: reading(0, 0.5)}, false, false},
	} {
		n := machine("n")
		c.change(n)
		if got := open(n, c.u, c.pressed); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// moved is a PodMigration that the loop made some time ago.
func moved(name, from, to, workload string, age time.Duration) *v1alpha1.PodMigration {
	return &v1alpha1.PodMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{
			AnnotationSourceNode: from, AnnotationWorkload: workload, AnnotationDecided: begin.Add(-age).Format(time.RFC3339Nano), AnnotationAmount: "1,2",
		}},
		Spec: v1alpha1.PodMigrationSpec{PodName: name, PodUID: "uid", TargetNode: to, Trigger: v1alpha1.TriggerResourcePressure},
	}
}

func TestHistory(t *testing.T) {
	t.Parallel()
	byHand := moved("other", "a", "c", "w9", 0)
	byHand.Spec.Trigger = v1alpha1.TriggerManual
	over := moved("over", "a", "d", "w3", 4*time.Minute)
	over.Status.Phase = v1alpha1.MigrationRolledBack
	refused := moved("refused", "a", "e", "w4", time.Minute)
	refused.Status.Phase = v1alpha1.MigrationRefused
	dry := moved("dry", "a", "f", "w5", 0)
	dry.Spec.DryRun = true
	failed, longAgo := moved("failed", "a", "g", "w7", 59*time.Minute), moved("long-ago", "a", "h", "w8", 61*time.Minute)
	failed.Status.Phase, longAgo.Status.Phase = v1alpha1.MigrationFailed, v1alpha1.MigrationFailed
	undone := moved("undone", "a", "i", "w10", 11*time.Minute)
	undone.Status.Phase = v1alpha1.MigrationRolledBack
	h := history{now: begin, o: Defaults(), list: []*v1alpha1.PodMigration{failed, longAgo, undone, moved("one", "a", "b", "w1", 29*time.Second), moved("two", "a", "b", "w2", 6*time.Minute), byHand, over, refused, dry}}
	for workload, want := range map[string]bool{"w1": true, "w2": true, "w3": true, "w4": true, "w5": false, "w6": false, "w7": true, "w8": false, "w9": false, "w10": false} {
		if h.resting(workload) != want {
			t.Errorf("workload %s rests: %v", workload, !want)
		}
	}
	for pair, want := range map[string]bool{"a b": false /* the same batch */, "b a": true, "a d": true, "d a": true, "a e": false, "a c": false, "b d": false} {
		from, to, _ := strings.Cut(pair, " ")
		if h.apart(from, to, 30*time.Second) != want {
			t.Errorf("%s kept apart: %v", pair, !want)
		}
	}
	if h.left("a", 30*time.Second) != 1 || h.left("a", 5*time.Minute) != 3 || h.left("b", time.Hour) != 0 {
		t.Errorf("left a: %d, %d", h.left("a", 30*time.Second), h.left("a", 5*time.Minute))
	}
	if !h.moving("uid", "default", "one") || h.moving("later", "default", "one") || h.moving("uid", "default", "over") || h.moving("uid", "default", "dry") {
		t.Error("who migrates is wrong")
	}
}

func TestNamesFollowFromTheDecision(t *testing.T) {
	t.Parallel()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", UID: "uid"}}
	h := history{}
	first := h.next(p, "a", begin)
	if again := (history{}).next(p, "a", begin.Add(300*time.Millisecond)); again != first || !strings.HasPrefix(first, "pressure-") {
		t.Errorf("%s, then %s", first, again)
	}
	h.list = []*v1alpha1.PodMigration{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: first}}}
	second := h.next(p, "a", begin)
	if second == first || h.next(p, "b", begin) == second || h.next(p, "a", begin.Add(time.Hour)) == second {
		t.Errorf("%s is not another", second)
	}
}

func TestAmountsOnRecord(t *testing.T) {
	t.Parallel()
	want := usage.Amount{CPU: 0.25, Memory: 3 << 30}
	if got, ok := decode(encode(want)); !ok || got != want {
		t.Errorf("got %v", got)
	}
	for _, text := range []string{"", "1", "a,b", "1,", "-1,2", "NaN,1", "1,2,3"} {
		if got, ok := decode(text); ok {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestWorkloads(t *testing.T) {
	t.Parallel()
	pod := func(kind, name, hash string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}
		if kind != "" {
			p.OwnerReferences = owned(kind, name)
		}
		if hash != "" {
			p.Labels = map[string]string{"pod-template-hash": hash}
		}
		return p
	}
	for want, p := range map[string]*corev1.Pod{
		"default/Deployment/web": pod("ReplicaSet", "web-5d4", "5d4"), "default/ReplicaSet/web": pod("ReplicaSet", "web", ""),
		"default/ReplicaSet/web-1": pod("ReplicaSet", "web-1", "5d4"), "default/StatefulSet/db": pod("StatefulSet", "db", ""), "default/Pod/p": pod("", "", ""),
	} {
		if got := workloadOf(p); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
