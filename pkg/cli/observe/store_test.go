package observe

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func aClaim(name, node string, conditions ...metav1.Condition) *claim {
	c := &claim{}
	c.Name = name
	c.CreationTimestamp = metav1.NewTime(t0)
	c.Labels = map[string]string{
		poolLabel: "general", corev1.LabelInstanceTypeStable: "c-4x-amd64-linux", capacityTypeLabel: "spot",
		corev1.LabelTopologyZone: "test-zone-a", v1alpha1.LabelWattsIdle: "40", v1alpha1.LabelWattsMax: "140",
	}
	c.Annotations = map[string]string{v1alpha1.AnnotationPricePerHour: "0.120000"}
	c.Spec.Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("2500m"), corev1.ResourceMemory: resource.MustParse("3Gi"), corev1.ResourcePods: resource.MustParse("3"),
	}
	c.Status.NodeName = node
	c.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")}
	c.Status.Conditions = conditions
	return c
}

func condition(kind, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason}
}

func aNode(name string, ready corev1.ConditionStatus) *corev1.Node {
	n := &corev1.Node{}
	n.Name = name
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, Reason: "NodeStatusUnknown"}}
	return n
}

func aPod(name, node, cpu string, phase corev1.PodPhase) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.UID = name, types.UID(name)
	p.Spec.NodeName = node
	p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
	}}}
	p.Status.Phase = phase
	return p
}

func TestStateJoinsClaimNodeAndPods(t *testing.T) {
	t.Parallel()
	s := newStore()
	s.setClaim(aClaim("general-1", "node-1", condition(conditionLaunched, "Launched"), condition(conditionInitialized, "Initialized")), t0)
	s.setNode(aNode("node-1", corev1.ConditionTrue), t0.Add(4*time.Second))
	s.setPod(aPod("a", "node-1", "1", corev1.PodRunning))
	s.setPod(aPod("b", "node-1", "1", corev1.PodSucceeded))
	s.setPod(aPod("c", "", "1", corev1.PodPending))
	got := s.state(t0.Add(time.Minute))
	if got.Running != 1 || got.Pending != 1 || len(got.Nodes) != 1 {
		t.Fatalf("got %+v", got)
	}
	n := got.Nodes[0]
	if n.Phase != Ready || n.Pods != 1 || n.CPU.Share() != 0.25 || n.Price != 0.12 || n.Watts() != 65 {
		t.Errorf("got %+v, %v W", n, n.Watts())
	}
	if n.Age(got.At) != time.Minute {
		t.Errorf("age %v", n.Age(got.At))
	}
}

// Half of a pod's GPUs are half of the devices' load, whatever the pod leaves of the CPUs.
func TestGPUsDriveTheirOwnWatts(t *testing.T) {
	t.Parallel()
	s := newStore()
	c, n, p := aClaim("gpu-1", "node-1"), aNode("node-1", corev1.ConditionTrue), aPod("a", "node-1", "1", corev1.PodRunning)
	c.Labels[v1alpha1.LabelWattsIdle], c.Labels[v1alpha1.LabelWattsMax] = "100", "500"
	c.Labels[v1alpha1.LabelDeviceWattsIdle], c.Labels[v1alpha1.LabelDeviceWattsMax] = "60", "360"
	n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("2")
	p.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("1")
	s.setClaim(c, t0)
	s.setNode(n, t0)
	if got := s.state(t0).Nodes[0].Watts(); got != 100 {
		t.Errorf("%v W without a pod, want 100", got)
	}
	s.setPod(p)
	// A quarter of the host's 100 W and half of the devices' 300 W.
	if got := s.state(t0).Nodes[0].Watts(); got != 275 {
		t.Errorf("%v W, want 275", got)
	}
}

func TestPhases(t *testing.T) {
	t.Parallel()
	initialized := condition(conditionInitialized, "Initialized")
	tainted := aNode("n", corev1.ConditionTrue)
	tainted.Spec.Taints = []corev1.Taint{{Key: disruptedTaint}}
	for name, c := range map[string]struct {
		claim *claim
		node  *corev1.Node
		want  Phase
		why   string
	}{
		"ordered":             {aClaim("c", ""), nil, Starting, ""},
		"joined, not usable":  {aClaim("c", "n"), aNode("n", corev1.ConditionFalse), Starting, ""},
		"ready":               {aClaim("c", "n", initialized), aNode("n", corev1.ConditionTrue), Ready, ""},
		"silent kubelet":      {aClaim("c", "n", initialized), aNode("n", corev1.ConditionUnknown), NotReady, "NodeStatusUnknown"},
		"chosen":              {aClaim("c", "n", initialized), tainted, Leaving, ""},
		"chosen for a reason": {aClaim("c", "n", initialized, condition(conditionDisruption, "Drifted")), tainted, Leaving, "Drifted"},
	} {
		if phase, why := phaseOf(c.claim, c.node); phase != c.want || why != c.why {
			t.Errorf("%s: got %s %q, want %s %q", name, phase, why, c.want, c.why)
		}
	}
}

func TestExpiryIsTold(t *testing.T) {
	t.Parallel()
	c := aClaim("c", "n")
	c.Spec.ExpireAfter = "30s"
	early, late := metav1.NewTime(t0.Add(10*time.Second)), metav1.NewTime(t0.Add(30*time.Second))
	c.DeletionTimestamp = &early
	if got := leavingBecause(c); got != "Deleted" {
		t.Errorf("deleted early: got %s", got)
	}
	c.DeletionTimestamp = &late
	if got := leavingBecause(c); got != "Expired" {
		t.Errorf("deleted at its time: got %s", got)
	}
}

func TestJournalTellsTheStoryOnce(t *testing.T) {
	t.Parallel()
	s := newStore()
	launched := condition(conditionLaunched, "Launched")
	initialized := condition(conditionInitialized, "Initialized")
	for range 3 {
		s.setClaim(aClaim("general-1", "", launched), t0)
	}
	s.setClaim(aClaim("general-1", "node-1", launched, initialized), t0)
	s.setNode(aNode("node-1", corev1.ConditionTrue), t0.Add(4*time.Second))
	s.setPod(aPod("a", "node-1", "1", corev1.PodRunning))
	s.setClaim(aClaim("general-1", "node-1", launched, initialized, condition(conditionDisruption, "Underutilized")), t0.Add(time.Minute))
	s.dropClaim("general-1", t0.Add(90*time.Second))
	var got []string
	for _, d := range s.journal.last(10) {
		got = append(got, string(d.Kind)+": "+d.Text)
	}
	want := []string{
		"open: opened c-4x-amd64-linux spot test-zone-a at $0.120/h for 3 pods, 2.5 CPU, 3 GiB",
		"joined: joined after 4s",
		"close: closing: its 1 pod fit elsewhere for less (consolidation of c-4x-amd64-linux spot test-zone-a at $0.120/h)",
		"gone: gone after 1m30s of life",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestPeakOutlivesTheMoment(t *testing.T) {
	t.Parallel()
	s := newStore()
	drifted := condition(conditionDisruption, "Drifted")
	s.setClaim(aClaim("a", "", drifted), t0)
	s.setClaim(aClaim("b", "", drifted), t0)
	s.dropClaim("a", t0)
	if got := s.state(t0).PeakDisrupted["general"]; got != 2 {
		t.Errorf("got %d, want 2", got)
	}
	s.resetPeaks()
	if got := s.state(t0).PeakDisrupted["general"]; got != 1 {
		t.Errorf("after reset: got %d, want 1", got)
	}
	s.setClaim(aClaim("b", "", drifted, condition(conditionTerminating, "InstanceTerminating")), t0)
	s.setClaim(aClaim("c", "", drifted), t0) // the next is closed while the machine of b ends
	if got := s.state(t0).PeakDisrupted["general"]; got != 1 {
		t.Errorf("while a machine ends: got %d, want 1", got)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	event := func(kind, reason, kindOfEvent, component string) *corev1.Event {
		return &corev1.Event{
			InvolvedObject: corev1.ObjectReference{Kind: kind, Name: "x"}, Reason: reason, Type: kindOfEvent,
			Message: "why\n  so.", Source: corev1.EventSource{Component: component},
		}
	}
	for name, c := range map[string]struct {
		event *corev1.Event
		kind  Kind
	}{
		"blocked":              {event("NodePool", "DisruptionBlocked", "Normal", "karpenter"), Blocked},
		"no capacity":          {event("NodeClaim", "InsufficientCapacityError", "Warning", "karpenter"), Trouble},
		"unschedulable":        {event("Pod", "FailedScheduling", "Warning", "karpenter"), Trouble},
		"scheduler's":          {event("Pod", "FailedScheduling", "Warning", "default-scheduler"), ""},
		"nominated":            {event("Pod", "Nominated", "Normal", "karpenter"), ""},
		"told by a condition":  {event("NodeClaim", "DisruptionTerminating", "Normal", "karpenter"), ""},
		"passing":              {passingEvent(), ""},
		"somebody's ConfigMap": {event("ConfigMap", "Broken", "Warning", "x"), ""},
	} {
		d, ok := fromEvent(c.event)
		if ok != (c.kind != "") || d.Kind != c.kind {
			t.Errorf("%s: got %v %q", name, ok, d.Kind)
		}
		if ok && d.Text != "why so" {
			t.Errorf("%s: text %q", name, d.Text)
		}
	}
}

func passingEvent() *corev1.Event {
	return &corev1.Event{InvolvedObject: corev1.ObjectReference{Kind: "Node"}, Reason: "DisruptionBlocked", Message: "Node is nominated for a pending pod"}
}

func TestJournalIsBounded(t *testing.T) {
	t.Parallel()
	j := newJournal()
	for i := range 3 * maxDecisions {
		j.add(Decision{Kind: Opened, Text: time.Duration(i).String(), Count: 1})
	}
	if len(j.all) > maxDecisions || len(j.index) != len(j.all) {
		t.Errorf("%d decisions, %d keys", len(j.all), len(j.index))
	}
	j.add(Decision{Kind: Opened, Text: time.Duration(3*maxDecisions - 1).String()})
	if newest := j.last(1)[0]; newest.Count != 2 {
		t.Errorf("told again is not counted: %+v", newest)
	}
}

func TestDecodesAClaim(t *testing.T) {
	t.Parallel()
	c, err := claimOf(&unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "general-1", "creationTimestamp": "2026-01-02T03:04:05Z"},
		"spec":     map[string]any{"expireAfter": "Never", "resources": map[string]any{"requests": map[string]any{"cpu": "1500m", "pods": "2"}}},
		"status": map[string]any{"nodeName": "n", "conditions": []any{
			map[string]any{"type": "Launched", "status": "True", "reason": "Launched", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"},
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "general-1" || !c.is(conditionLaunched) || cores(c.Spec.Resources.Requests) != 1.5 || !c.CreationTimestamp.Time.Equal(t0) {
		t.Errorf("got %+v", c)
	}
}

func TestLedgerKeepsWhatIsGone(t *testing.T) {
	t.Parallel()
	s := newStore()
	r := &Recorder{store: s}
	s.setClaim(aClaim("a", ""), t0)
	s.setClaim(aClaim("b", ""), t0)
	s.setClaim(aClaim("a", "", condition(conditionDisruption, "Empty")), t0)
	s.dropClaim("a", t0.Add(time.Minute))
	got := r.Machines()
	if len(got) != 2 || got[0].Life(t0.Add(time.Hour)) != time.Minute || got[0].Why != "Empty" || got[1].Life(t0.Add(time.Hour)) != time.Hour {
		t.Errorf("got %+v", got)
	}
}

func TestCandidatesOfOneCommandAreOneDecision(t *testing.T) {
	t.Parallel()
	s := newStore()
	for _, node := range []string{"a", "b"} {
		s.addEvent(&corev1.Event{
			InvolvedObject: corev1.ObjectReference{Kind: "NodeClaim", Name: node}, Reason: "ConsolidationCandidate",
			Message: "Consolidation candidate: replace: [x-" + node + "] (part of 2-node consolidation) (savings: $0.45)",
		})
	}
	got := s.journal.last(9)
	if len(got) != 1 || got[0].Text != "consolidation found: to replace 2 node(s) saves $0.45/h" || got[0].Count != 2 {
		t.Errorf("got %+v", got)
	}
}
