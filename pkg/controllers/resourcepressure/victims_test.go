package resourcepressure

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/usage"
)

func owned(kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{Kind: kind, Name: name, UID: "owner", Controller: ptr.To(true)}}
}

// mover is a pod that may go, and relieves its node of a tenth.
func mover(name string) *candidate {
	return &candidate{
		Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, OwnerReferences: owned("ReplicaSet", "set")},
			Spec: corev1.PodSpec{NodeName: "a"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}},
		Strategy: v1alpha1.StrategyRestart, CPU: 0.1, Memory: 0.1,
	}
}

func short(cpu, memory float64) track {
	t := track{now: usage.Usage{CPU: reading(0, cpu), Memory: reading(0, memory)}}
	t.cpu.pressed, t.memory.pressed = cpu > 0.85, memory > 0.85
	return t
}

func TestWhoStays(t *testing.T) {
	t.Parallel()
	now := metav1.NewTime(begin)
	for want, changes := range map[string][]func(*candidate){
		"": {func(*candidate) {}, func(c *candidate) { c.Pod.Annotations = map[string]string{annotationDoNotDisrupt: "false"} },
			func(c *candidate) { c.Pod.OwnerReferences, c.Strategy = nil, v1alpha1.StrategyCheckpoint },
			func(c *candidate) {
				c.McKubes = []*mcv1.McKube{{Spec: mcv1.McKubeSpec{Migration: &mcv1.Migration{Policy: mcv1.MigrationRestart}}}}
			}},
		staysSystem:     {func(c *candidate) { c.Pod.Namespace = "kube-system" }, func(c *candidate) { c.Pod.Spec.PriorityClassName = "system-node-critical" }},
		staysExcluded:   {func(c *candidate) { c.Excluded = true }},
		staysNotRunning: {func(c *candidate) { c.Pod.DeletionTimestamp = &now }, func(c *candidate) { c.Pod.Status.Phase = corev1.PodPending }},
		staysStatic:     {func(c *candidate) { c.Pod.Annotations = map[string]string{annotationMirror: "x"} }, func(c *candidate) { c.Pod.OwnerReferences = owned("Node", "a") }},
		staysDaemonSet:  {func(c *candidate) { c.Pod.OwnerReferences = owned("DaemonSet", "d") }},
		staysAsked: {func(c *candidate) { c.Pod.Annotations = map[string]string{annotationDoNotDisrupt: "true"} },
			func(c *candidate) { c.Pod.Annotations = map[string]string{annotationDoNotDisrupt: "10m"} }},
		staysNever: {func(c *candidate) {
			c.McKubes = []*mcv1.McKube{{}, {Spec: mcv1.McKubeSpec{Migration: &mcv1.Migration{Policy: mcv1.MigrationNever}}}}
		}},
		staysOwnerless:   {func(c *candidate) { c.Pod.OwnerReferences = nil }},
		staysLocal:       {func(c *candidate) { c.Local = "data" }},
		staysUndecidable: {func(c *candidate) { c.Undecidable = errors.New("who knows") }},
		staysMoving:      {func(c *candidate) { c.Moving = true }},
		staysStill:       {func(c *candidate) { c.Still = true }},
		staysCooldown:    {func(c *candidate) { c.Resting = true }},
		staysNoRelief:    {func(c *candidate) { c.CPU = 0 }},
	} {
		for i, change := range changes {
			c := mover("p")
			change(c)
			if got := c.stays(short(0.9, 0.5)); got != want {
				t.Errorf("%s %d: got %q", want, i, got)
			}
		}
	}
}

// ran says that a pod became ready so long after it came to its node.
func ran(c *candidate, start time.Duration) *candidate {
	at, ready := metav1.NewTime(begin), metav1.NewTime(begin.Add(start))
	c.Pod.Status.StartTime = &at
	c.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: ready}}
	return c
}

func TestOrder(t *testing.T) {
	t.Parallel()
	high, middle, low := mover("high"), mover("middle"), mover("low")
	high.Criticality, middle.Criticality, low.Criticality = 3, 2, 1
	high.CPU = 0.9
	important := mover("important")
	important.Pod.Spec.Priority = ptr.To(int32(1000))
	slow, quick, large, surge, frozen := ran(mover("slow"), time.Minute), ran(mover("quick"), time.Second), ran(mover("large"), time.Minute), mover("surge"), mover("frozen")
	large.CPU = 0.4
	surge.Strategy = v1alpha1.StrategySurge
	frozen.Strategy, frozen.Amount.Memory = v1alpha1.StrategyCheckpoint, 1<<30
	job := ran(mover("job"), time.Second)
	job.Pod.OwnerReferences = owned("Job", "j")
	list := []*candidate{high, job, low, slow, important, middle, large, frozen, quick, surge}
	order(list, short(0.95, 0.5), begin.Add(time.Hour))
	var got []string
	for _, c := range list {
		got = append(got, c.Pod.Name)
	}
	if want := "surge quick frozen large slow job important low middle high"; strings.Join(got, " ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, " "), want)
	}
}

func TestReliefIsOfWhatIsShort(t *testing.T) {
	t.Parallel()
	c := &candidate{CPU: 0.1, Memory: 0.2}
	for _, tc := range []struct {
		of   track
		want float64
	}{{short(0.9, 0.5), 0.1}, {short(0.5, 0.9), 0.2}, {short(0.95, 0.9), 0.1}, {short(0.9, 0.95), 0.2}} {
		if got := c.relief(tc.of); got != tc.want {
			t.Errorf("%+v: got %v, want %v", tc.of.now, got, tc.want)
		}
	}
}

func TestEnough(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		of          track
		cpu, memory float64
		want        bool
	}{
		{short(0.9, 0.5), 0.1, 0, false}, {short(0.9, 0.5), 0.16, 0, true}, {short(0.9, 0.9), 0.2, 0.1, false}, {short(0.9, 0.9), 0.2, 0.2, true},
	} {
		if got := enough(tc.of, usually, tc.cpu, tc.memory); got != tc.want {
			t.Errorf("%+v less %v and %v: %v", tc.of.now, tc.cpu, tc.memory, got)
		}
	}
}

func TestStrategies(t *testing.T) {
	t.Parallel()
	pod := func(kind string) *corev1.Pod {
		p := &corev1.Pod{}
		if kind != "" {
			p.OwnerReferences = owned(kind, "o")
		}
		return p
	}
	volume := pod("ReplicaSet")
	volume.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}}}
	wants := func(kind mcv1.MigrationKind) []*mcv1.McKube {
		return []*mcv1.McKube{{Spec: mcv1.McKubeSpec{Migration: &mcv1.Migration{Policy: kind}}}}
	}
	policy := func(s v1alpha1.MigrationStrategy, checkpointing *bool) *v1alpha1.MigrationPolicy {
		return &v1alpha1.MigrationPolicy{Spec: v1alpha1.MigrationPolicySpec{Strategy: s, Checkpointing: checkpointing}}
	}
	for _, tc := range []struct {
		name   string
		pod    *corev1.Pod
		mckube []*mcv1.McKube
		policy *v1alpha1.MigrationPolicy
		off    bool
		want   v1alpha1.MigrationStrategy
	}{
		{name: "a ReplicaSet's", pod: pod("ReplicaSet"), want: v1alpha1.StrategySurge},
		{name: "with a volume", pod: volume, want: v1alpha1.StrategyRestart},
		{name: "a StatefulSet's", pod: pod("StatefulSet"), want: v1alpha1.StrategyRestart},
		{name: "its policy's", pod: pod("ReplicaSet"), policy: policy(v1alpha1.StrategyEvict, nil), want: v1alpha1.StrategyEvict},
		{name: "its McKube's first", pod: pod("ReplicaSet"), mckube: wants(mcv1.MigrationCheckpoint), policy: policy(v1alpha1.StrategyEvict, nil), want: v1alpha1.StrategyCheckpoint},
		{name: "checkpointing is off", pod: pod(""), mckube: wants(mcv1.MigrationCheckpoint), off: true, want: v1alpha1.StrategyRestart},
		{name: "the policy has it off", pod: pod("ReplicaSet"), policy: policy(v1alpha1.StrategyCheckpoint, ptr.To(false)), want: v1alpha1.StrategySurge},
	} {
		if got := strategyOf(tc.pod, tc.mckube, tc.policy, !tc.off); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}
