package resourcepressure

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/usage"
)

const (
	annotationDoNotDisrupt = "karpenter.sh/do-not-disrupt"
	annotationMirror       = "kubernetes.io/config.mirror"

	// freezeBase and freezePerGiB are what a checkpoint is expected to stop a pod for.
	freezeBase   = 1500 * time.Millisecond
	freezePerGiB = 3 * time.Second
	// unknownStart is what a pod is expected to take to start that has not become ready yet, longestStart the most that is
	// believed of one that has.
	unknownStart = 30 * time.Second
	longestStart = 10 * time.Minute
)

// Reasons why a pod stays.
const (
	staysSystem      = "SystemPod"
	staysExcluded    = "NamespaceExcluded"
	staysNotRunning  = "NotRunning"
	staysDaemonSet   = "DaemonSetPod"
	staysStatic      = "StaticPod"
	staysAsked       = "DoNotDisrupt"
	staysNever       = "MigrationNever"
	staysOwnerless   = "NoOwner"
	staysLocal       = "NodeLocalVolume"
	staysMoving      = "MigratesAlready"
	staysStill       = "StandsStill"
	staysCooldown    = "WorkloadCooldown"
	staysNoRelief    = "NoRelief"
	staysUndecidable = "PolicyUnknown"
)

// candidate is a pod of a node under pressure, with what the choice needs to know of it.
type candidate struct {
	Pod *corev1.Pod
	// Criticality from 0 (no real-time work) to 3 (High).
	Criticality int
	// McKubes that govern it.
	McKubes []*mcv1.McKube
	// Strategy that it is expected to be moved by.
	Strategy v1alpha1.MigrationStrategy
	// Workload that it belongs to, and whose pods are alike.
	Workload string
	// Amount that it uses, or requests where its usage is not known.
	Amount usage.Amount
	// Local names a volume that is of its node; empty: none is.
	Local string
	// Excluded: its namespace is none whose pods are moved.
	Excluded bool
	// Moving: a migration of it is under way. Still: it stands still for a NodeCheckpoint, though none may be. Resting: a pod of the workload was moved lately.
	Moving, Still, Resting bool
	// Undecidable is why nobody knows which MigrationPolicy is its.
	Undecidable error
	// CPU and Memory are what it would relieve its node of, as ratios.
	CPU, Memory float64
}

// stays is why the pod is not moved, as a word; empty: it may be.
func (c *candidate) stays(t track) string {
	for _, gate := range []struct {
		reason string
		holds  bool
	}{
		{staysSystem, c.Pod.Namespace == metav1.NamespaceSystem || strings.HasPrefix(c.Pod.Spec.PriorityClassName, "system-")},
		{staysExcluded, c.Excluded},
		{staysNotRunning, c.Pod.DeletionTimestamp != nil || c.Pod.Status.Phase != corev1.PodRunning},
		{staysStatic, c.Pod.Annotations[annotationMirror] != "" || ownedBy(c.Pod, "Node")},
		{staysDaemonSet, ownedBy(c.Pod, "DaemonSet")},
		{staysAsked, asksToStay(c.Pod)},
		{staysNever, slices.ContainsFunc(c.McKubes, never)},
		{staysOwnerless, metav1.GetControllerOf(c.Pod) == nil && c.Strategy != v1alpha1.StrategyCheckpoint},
		{staysLocal, c.Local != ""},
		{staysUndecidable, c.Undecidable != nil},
		{staysMoving, c.Moving},
		{staysStill, c.Still},
		{staysCooldown, c.Resting},
		{staysNoRelief, c.relief(t) <= 0},
	} {
		if gate.holds {
			return gate.reason
		}
	}
	return ""
}

func ownedBy(p *corev1.Pod, kind string) bool {
	owner := metav1.GetControllerOf(p)
	return owner != nil && owner.Kind == kind
}

// asksToStay reads Karpenter's annotation: true, or for how long.
func asksToStay(p *corev1.Pod) bool {
	value, ok := p.Annotations[annotationDoNotDisrupt]
	return ok && value != "false"
}

func never(m *mcv1.McKube) bool {
	return m.Spec.Migration != nil && m.Spec.Migration.Policy == mcv1.MigrationNever
}

// relief is what the node is freed of, of what it is short of; of both, of that which it has less left of.
func (c *candidate) relief(t track) float64 {
	switch {
	case t.cpu.pressed && t.memory.pressed && t.now.CPU.Ratio >= t.now.Memory.Ratio, !t.memory.pressed:
		return c.CPU
	}
	return c.Memory
}

// unavailable is how long the pod is expected not to serve when it is moved; a Job loses what it has done, too.
func (c *candidate) unavailable(now time.Time) time.Duration {
	switch c.Strategy {
	case v1alpha1.StrategySurge:
		return 0
	case v1alpha1.StrategyCheckpoint:
		return freezeBase + time.Duration(c.Amount.Memory/(1<<30)*float64(freezePerGiB))
	}
	cost := startOf(c.Pod)
	if started := c.Pod.Status.StartTime; started != nil && ownedBy(c.Pod, "Job") {
		cost += max(0, now.Sub(started.Time))
	}
	return cost
}

// startOf is how long the pod took from its arrival on the node until it was ready.
func startOf(p *corev1.Pod) time.Duration {
	if p.Status.StartTime == nil {
		return unknownStart
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return min(max(0, c.LastTransitionTime.Sub(p.Status.StartTime.Time)), longestStart)
		}
	}
	return unknownStart
}

// order puts candidates in the order in which they go: the least critical first, then the lowest priority, then what
// relieves the node of most for the shortest interruption.
func order(list []*candidate, t track, now time.Time) {
	worth := func(c *candidate) float64 { return c.relief(t) / (1 + c.unavailable(now).Seconds()) }
	slices.SortFunc(list, func(a, b *candidate) int {
		return cmp.Or(
			cmp.Compare(a.Criticality, b.Criticality),
			cmp.Compare(priority(a.Pod), priority(b.Pod)),
			cmp.Compare(worth(b), worth(a)),
			cmp.Compare(a.Pod.Namespace+"/"+a.Pod.Name, b.Pod.Namespace+"/"+b.Pod.Name),
		)
	})
}

func priority(p *corev1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// enough tells whether the node would be free of the pressure without what leaves it.
func enough(t track, s setting, leavesCPU, leavesMemory float64) bool {
	fine := func(r run, v usage.Value, leaves float64) bool {
		return !r.pressed || !v.Known() || v.Ratio-leaves < s.clear()
	}
	return fine(t.cpu, t.now.CPU, leavesCPU) && fine(t.memory, t.now.Memory, leavesMemory)
}
