package state

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// node is what is kept of a Node.
type node struct {
	uid                                types.UID
	name                               string
	ready, schedulable, deleting, busy bool
	labels                             map[string]string
	taints                             []corev1.Taint
}

func parseNode(n *corev1.Node) *node {
	out := &node{
		uid: n.UID, name: n.Name, schedulable: !n.Spec.Unschedulable, deleting: n.DeletionTimestamp != nil,
		busy: n.Annotations[mcv1.AnnotationCPUBusy] == "true", labels: n.Labels, taints: n.Spec.Taints,
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.ready = c.Status == corev1.ConditionTrue
		}
	}
	return out
}

// slice is what is kept of a ResourceSlice of our driver.
type slice struct {
	uid, owner types.UID // owner: the Node's UID, if it says so
	name, node string
	generation int64 // of the pool: slices of an older one no longer count
	backend    string
	cores      []packedCore
	problems   []string
}

// packedCore is an rt.Core in half the memory: there are far more cores than containers.
type packedCore struct {
	id, numa, sibling, capacity, reserve, granularity int32
	policy                                            rt.Policy
}

func pack(c rt.Core) packedCore {
	return packedCore{
		id: int32(c.ID), numa: int32(c.NUMA), sibling: int32(c.Sibling), capacity: bounded(c.Capacity), reserve: bounded(c.EscalationReserve),
		granularity: int32(min(c.Granularity, math.MaxInt32)), policy: c.Policy,
	}
}

func (c packedCore) core() rt.Core {
	return rt.Core{
		ID: int(c.id), NUMA: int(c.numa), Sibling: int(c.sibling), Capacity: rt.PPM(c.capacity), EscalationReserve: rt.PPM(c.reserve),
		Granularity: int64(c.granularity), Policy: c.policy,
	}
}

// parseSlice is nil for slices of other drivers.
func parseSlice(s *resourcev1.ResourceSlice) *slice {
	if s.Spec.Driver != v1alpha1.DriverCPU || s.Spec.NodeName == nil {
		return nil
	}
	out := &slice{uid: s.UID, name: s.Name, node: *s.Spec.NodeName, generation: s.Spec.Pool.Generation, owner: nodeOwner(s.OwnerReferences)}
	out.cores = make([]packedCore, 0, len(s.Spec.Devices))
	for _, d := range s.Spec.Devices {
		core, err := rtdra.CoreOf(d)
		if err != nil {
			out.problems = append(out.problems, fmt.Sprintf("ResourceSlice %s: %v", s.Name, err))
			continue
		}
		out.backend = rtdra.BackendOf(d)
		out.cores = append(out.cores, pack(core))
	}
	return out
}

// nodeOwner is the UID of the Node among the owners; empty without one.
func nodeOwner(owners []metav1.OwnerReference) types.UID {
	for _, o := range owners {
		if o.Kind == "Node" {
			return o.UID
		}
	}
	return ""
}

// mckube is a McKube with its selector compiled.
type mckube struct {
	*mcv1.McKube
	selector labels.Selector // nil: by name
}

func parseMcKube(m *mcv1.McKube) *mckube {
	out := &mckube{McKube: m}
	if m.Spec.Selector == nil {
		return out
	}
	selector, err := metav1.LabelSelectorAsSelector(m.Spec.Selector)
	if err != nil || selector.Empty() {
		selector = labels.Nothing() // as mcv1.MatchPod: what the API refuses governs nothing
	}
	out.selector = selector
	return out
}

// matches is mcv1.MatchPod with the compiled selector.
func (m *mckube) matches(namespace, name string, set labels.Set) bool {
	if m.Namespace != namespace {
		return false
	}
	if m.selector != nil {
		return m.selector.Matches(set)
	}
	return m.Spec.Podname != "" && m.Spec.Podname == name
}

func parsePod(p *corev1.Pod) *PodView {
	out := &PodView{
		UID: p.UID, Namespace: p.Namespace, Name: p.Name, NodeName: p.Spec.NodeName, Phase: p.Status.Phase,
		Deleting: p.DeletionTimestamp != nil, Created: p.CreationTimestamp, Labels: p.Labels,
		Grace:      time.Duration(ptr.Deref(p.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)) * time.Second,
		Pending:    p.Annotations[mcv1.AnnotationPending] == "true",
		Configured: p.Annotations[mcv1.AnnotationConfigured] == "true",
		Replaces:   types.UID(p.Annotations[mcv1.AnnotationReplaces]),
		Claims:     podClaims(p), placement: placementOf(p),
	}
	owner := metav1.GetControllerOf(p)
	out.Remade = owner != nil
	out.Owned = out.Remade && owner.Kind != "DaemonSet" && owner.Kind != "Node"
	out.Namesake = out.Remade && owner.Kind == "StatefulSet"
	out.Containers = make([]string, 0, len(p.Spec.Containers))
	for _, c := range p.Spec.Containers {
		out.Containers = append(out.Containers, c.Name)
	}
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			out.Sidecars = append(out.Sidecars, c.Name)
		}
	}
	for _, g := range p.Spec.SchedulingGates {
		out.SchedulingGates = append(out.SchedulingGates, g.Name)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			out.Unschedulable, out.UnschedulableSince = c.Message, c.LastTransitionTime
		}
	}
	if text := p.Annotations[mcv1.AnnotationPreempting]; text != "" {
		if plan, err := ParsePreemption(text); err == nil { // a plan that cannot be parsed holds no pod back
			out.Preempting = &plan
		}
	}
	return out
}

// podClaims are the claims of the pod that a container uses.
func podClaims(p *corev1.Pod) []PodClaim {
	var out []PodClaim
	for _, c := range p.Spec.ResourceClaims {
		claim := PodClaim{Name: c.Name}
		if c.ResourceClaimName != nil {
			claim.Object = *c.ResourceClaimName
		}
		if c.ResourceClaimTemplateName != nil {
			claim.Template = *c.ResourceClaimTemplateName
		}
		for _, s := range p.Status.ResourceClaimStatuses {
			if s.Name == c.Name && s.ResourceClaimName != nil {
				claim.Object = *s.ResourceClaimName
			}
		}
		claim.Container = claimUser(p, c.Name)
		out = append(out, claim)
	}
	return out
}

func claimUser(p *corev1.Pod, claim string) string {
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for _, c := range list {
			if slices.ContainsFunc(c.Resources.Claims, func(r corev1.ResourceClaim) bool { return r.Name == claim }) {
				return c.Name
			}
		}
	}
	return ""
}

// placementOf is nil for a pod that any node would do for.
func placementOf(p *corev1.Pod) *placement {
	if p.Spec.NodeName != "" { // what was for its arrival does not keep it
		p = v1alpha1.Unpinned(p)
	}
	out := placement{nodeSelector: p.Spec.NodeSelector, tolerations: p.Spec.Tolerations}
	if p.Spec.Affinity != nil {
		out.affinity = p.Spec.Affinity.NodeAffinity
	}
	if len(out.nodeSelector) == 0 && len(out.tolerations) == 0 && out.affinity == nil {
		return nil
	}
	return &out
}

// parseClaim is nil for claims that have nothing to do with our driver.
func parseClaim(c *resourcev1.ResourceClaim) *ClaimView {
	shares := sharesOf(c)
	if len(shares) == 0 && !asksForCore(c) {
		return nil
	}
	out := &ClaimView{
		UID: c.UID, Namespace: c.Namespace, Name: c.Name, PodUID: podOf(c), Core: rt.NoCore,
		Deleting: c.DeletionTimestamp != nil, Created: c.CreationTimestamp, podClaim: c.Annotations[resourcev1.PodResourceClaimAnnotation],
		Held: c.Labels[v1alpha1.LabelHeldFor] != "",
	}
	if len(shares) > 0 {
		out.Node, out.Core, out.Claimed, out.further = shares[0].node, shares[0].core, shares[0].ppm, shares[1:]
	}
	return out
}

func asksForCore(c *resourcev1.ResourceClaim) bool {
	return slices.ContainsFunc(c.Spec.Devices.Requests, func(r resourcev1.DeviceRequest) bool {
		if r.Exactly != nil && r.Exactly.DeviceClassName == v1alpha1.DeviceClassRTCore {
			return true
		}
		return slices.ContainsFunc(r.FirstAvailable, func(s resourcev1.DeviceSubRequest) bool { return s.DeviceClassName == v1alpha1.DeviceClassRTCore })
	})
}

// sharesOf are the cores that a claim was given. A pool is named after its node. A result without
// a consumed capacity holds the whole device.
func sharesOf(c *resourcev1.ResourceClaim) []share {
	if c.Status.Allocation == nil {
		return nil
	}
	var out []share
	for _, r := range c.Status.Allocation.Devices.Results {
		core, err := coreNumber(r.Device)
		if r.Driver != v1alpha1.DriverCPU || err != nil {
			continue
		}
		ppm := rt.MaxCapacity
		if used, ok := r.ConsumedCapacity[v1alpha1.CapacityRTBandwidth]; ok {
			ppm = rt.PPM(used.Value())
		}
		out = append(out, share{node: r.Pool, core: core, ppm: ppm})
	}
	return out
}

var errNoCore = errors.New("not the device of a core")

// coreNumber reads a device's name back.
func coreNumber(device string) (int, error) {
	text, ok := strings.CutPrefix(device, strings.TrimSuffix(rtdra.DeviceName(0), "0"))
	var id int
	if _, err := fmt.Sscanf(text, "%d", &id); !ok || err != nil || rtdra.DeviceName(id) != device {
		return 0, errNoCore
	}
	return id, nil
}

// podOf is the pod that the claim belongs to: its owner, or else the one it is reserved for.
func podOf(c *resourcev1.ResourceClaim) types.UID {
	for _, o := range c.OwnerReferences {
		if o.Kind == "Pod" {
			return o.UID
		}
	}
	var users []resourcev1.ResourceClaimConsumerReference
	for _, u := range c.Status.ReservedFor {
		if u.Resource == "pods" {
			users = append(users, u)
		}
	}
	if len(users) == 0 {
		return ""
	}
	return slices.MinFunc(users, func(a, b resourcev1.ResourceClaimConsumerReference) int { return cmp.Compare(a.UID, b.UID) }).UID
}
