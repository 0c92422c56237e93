package observe

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/powermodel"
)

// Names of the API that is watched.
const (
	poolLabel         = "karpenter.sh/nodepool"
	capacityTypeLabel = "karpenter.sh/capacity-type"
	disruptedTaint    = "karpenter.sh/disrupted"

	conditionLaunched    = "Launched"
	conditionInitialized = "Initialized"
	conditionDrifted     = "Drifted"
	conditionDisruption  = "DisruptionReason"
	conditionTerminating = "InstanceTerminating"
)

// NodeClaims is the resource of NodeClaims.
var NodeClaims = schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodeclaims"}

// claim is what is read of a NodeClaim.
type claim struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ExpireAfter string `json:"expireAfter"`
		Resources   struct {
			Requests corev1.ResourceList `json:"requests"`
		} `json:"resources"`
	} `json:"spec"`
	Status struct {
		NodeName    string              `json:"nodeName"`
		Allocatable corev1.ResourceList `json:"allocatable"`
		Conditions  []metav1.Condition  `json:"conditions"`
	} `json:"status"`
}

func claimOf(obj *unstructured.Unstructured) (*claim, error) {
	c := &claim{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, c); err != nil {
		return nil, fmt.Errorf("reading NodeClaim %s: %w", obj.GetName(), err)
	}
	return c, nil
}

func (c *claim) is(condition string) bool {
	return meta.IsStatusConditionTrue(c.Status.Conditions, condition)
}

// reason is the reason of a condition that is true, else "".
func (c *claim) reason(condition string) string {
	found := meta.FindStatusCondition(c.Status.Conditions, condition)
	if found == nil || found.Status != metav1.ConditionTrue {
		return ""
	}
	return found.Reason
}

// expired says that the claim is deleted because its time was over.
func (c *claim) expired() bool {
	after, err := time.ParseDuration(c.Spec.ExpireAfter)
	if err != nil || c.DeletionTimestamp == nil {
		return false
	}
	// Timestamps of the API are whole seconds.
	return !c.DeletionTimestamp.Add(time.Second).Before(c.CreationTimestamp.Add(after))
}

// node joins a claim and its Node, either of which may be nil.
func nodeOf(c *claim, n *corev1.Node) Node {
	out := Node{Phase: Starting, requested: corev1.ResourceList{}}
	if c != nil {
		out.Name, out.Claim, out.Created, out.Labels = c.Name, c.Name, c.CreationTimestamp.Time, c.Labels
		out.describe(&c.ObjectMeta, c.Status.Allocatable)
	}
	if n != nil {
		if c == nil {
			out.Created = n.CreationTimestamp.Time
		}
		out.Name = n.Name
		out.describe(&n.ObjectMeta, n.Status.Allocatable)
	}
	out.Phase, out.Why = phaseOf(c, n)
	// One whose machine is ending is drained: Karpenter closes the next before this one's objects have gone.
	ending := c != nil && c.is(conditionTerminating)
	out.Disrupted = (out.Phase == Leaving || out.Phase == NotReady) && !ending
	return out
}

// describe fills what labels, annotations and allocatable tell; later calls add to earlier ones.
func (n *Node) describe(m *metav1.ObjectMeta, allocatable corev1.ResourceList) {
	for to, label := range map[*string]string{
		&n.Pool: poolLabel, &n.Type: corev1.LabelInstanceTypeStable,
		&n.CapacityType: capacityTypeLabel, &n.Zone: corev1.LabelTopologyZone,
	} {
		if v := m.Labels[label]; v != "" {
			*to = v
		}
	}
	if v, err := strconv.ParseFloat(m.Annotations[v1alpha1.AnnotationPricePerHour], 64); err == nil {
		n.Price = v
	}
	if p, known := powermodel.FromLabels(m.Labels); known {
		n.Power = p
	}
	if len(allocatable) > 0 {
		n.allocatable = allocatable
		n.CPU.Capacity = cores(allocatable)
		n.MemoryGiB.Capacity = gib(allocatable)
		n.GPU.Capacity = powermodel.Devices(allocatable, powermodel.GPU)
	}
}

func phaseOf(c *claim, n *corev1.Node) (Phase, string) {
	if c != nil {
		if reason := c.reason(conditionDisruption); reason != "" || c.DeletionTimestamp != nil {
			return Leaving, leavingBecause(c)
		}
	}
	if n == nil {
		return Starting, ""
	}
	if n.DeletionTimestamp != nil || tainted(n) {
		return Leaving, ""
	}
	initialized := c == nil || c.is(conditionInitialized)
	for _, cond := range n.Status.Conditions {
		if cond.Type == corev1.NodeReady && cond.Status != corev1.ConditionTrue && initialized {
			return NotReady, cond.Reason
		}
	}
	if !initialized {
		return Starting, ""
	}
	return Ready, ""
}

// leavingBecause is one word for why a claim leaves.
func leavingBecause(c *claim) string {
	if reason := c.reason(conditionDisruption); reason != "" {
		return reason
	}
	if c.Annotations[v1alpha1.AnnotationTerminateAt] != "" {
		return "Interrupted"
	}
	if c.expired() {
		return "Expired"
	}
	return "Deleted"
}

func tainted(n *corev1.Node) bool {
	for _, t := range n.Spec.Taints {
		if t.Key == disruptedTaint {
			return true
		}
	}
	return false
}

// addTo adds a list of resources to sum.
func addTo(sum, list corev1.ResourceList) {
	for name, q := range list {
		have := sum[name]
		have.Add(q)
		sum[name] = have
	}
}

func cores(r corev1.ResourceList) float64 { return r.Cpu().AsApproximateFloat64() }

func gib(r corev1.ResourceList) float64 { return r.Memory().AsApproximateFloat64() / (1 << 30) }
