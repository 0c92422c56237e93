package history

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// State is the cluster right after one write.
type State struct {
	// Revision of the write.
	Revision uint64
	// Write is the write; the zero value in the state at the beginning of a history.
	Write Version
	// Nodes, NodeClaims, RTNodes, RTActions and ResourceSlices by name; Pods, McKubes, ResourceClaims and PodMigrations by
	// namespace and name.
	Nodes      map[string]*corev1.Node
	NodeClaims map[string]*karpenterv1.NodeClaim
	RTNodes    map[string]*mckubev1alpha1.RTNode
	Actions    map[string]*mckubev1alpha1.RTAction
	Slices     map[string]*resourcev1.ResourceSlice
	Pods       map[types.NamespacedName]*corev1.Pod
	McKubes    map[types.NamespacedName]*mcoperatorv1.McKube
	Claims     map[types.NamespacedName]*resourcev1.ResourceClaim
	Migrations map[types.NamespacedName]*mckubev1alpha1.PodMigration
}

func newState() State {
	return State{
		Nodes:      map[string]*corev1.Node{},
		NodeClaims: map[string]*karpenterv1.NodeClaim{},
		RTNodes:    map[string]*mckubev1alpha1.RTNode{},
		Actions:    map[string]*mckubev1alpha1.RTAction{},
		Slices:     map[string]*resourcev1.ResourceSlice{},
		Pods:       map[types.NamespacedName]*corev1.Pod{},
		McKubes:    map[types.NamespacedName]*mcoperatorv1.McKube{},
		Claims:     map[types.NamespacedName]*resourcev1.ResourceClaim{},
		Migrations: map[types.NamespacedName]*mckubev1alpha1.PodMigration{},
	}
}

// Walk calls visit with the state at the beginning of the history and after each version in it. The
// maps are reused: visit keeps nothing but the objects.
func (h History) Walk(visit func(State)) {
	s := newState()
	after := h.Versions()
	for _, v := range h.versions[:len(h.versions)-len(after)] {
		s.apply(v)
	}
	s.Revision, s.Write = h.from, Version{}
	visit(s)
	for _, v := range after {
		s.apply(v)
		visit(s)
	}
}

// First returns the first state for which holds is true. The maps are a copy.
func (h History) First(holds func(State) bool) (State, bool) {
	var first State
	found := false
	h.Walk(func(s State) {
		if !found && holds(s) {
			first, found = s.clone(), true
		}
	})
	return first, found
}

// Last returns the newest state. The maps are a copy.
func (h History) Last() State {
	var last State
	h.Walk(func(s State) { last = s })
	return last.clone()
}

func (s *State) apply(v Version) {
	s.Revision, s.Write = v.Revision, v
	switch o := v.Object.(type) {
	case *corev1.Node:
		put(s.Nodes, o.Name, o, v.Type)
	case *karpenterv1.NodeClaim:
		put(s.NodeClaims, o.Name, o, v.Type)
	case *corev1.Pod:
		put(s.Pods, client.ObjectKeyFromObject(o), o, v.Type)
	case *mckubev1alpha1.RTNode:
		put(s.RTNodes, o.Name, o, v.Type)
	case *mckubev1alpha1.RTAction:
		put(s.Actions, o.Name, o, v.Type)
	case *resourcev1.ResourceSlice:
		put(s.Slices, o.Name, o, v.Type)
	case *mcoperatorv1.McKube:
		put(s.McKubes, client.ObjectKeyFromObject(o), o, v.Type)
	case *resourcev1.ResourceClaim:
		put(s.Claims, client.ObjectKeyFromObject(o), o, v.Type)
	case *mckubev1alpha1.PodMigration:
		put(s.Migrations, client.ObjectKeyFromObject(o), o, v.Type)
	}
}

func put[K comparable, V any](m map[K]V, k K, o V, t watch.EventType) {
	if t == watch.Deleted {
		delete(m, k)
		return
	}
	m[k] = o
}

func (s State) clone() State {
	s.Nodes, s.NodeClaims, s.Pods = maps.Clone(s.Nodes), maps.Clone(s.NodeClaims), maps.Clone(s.Pods)
	s.RTNodes, s.Actions, s.Slices = maps.Clone(s.RTNodes), maps.Clone(s.Actions), maps.Clone(s.Slices)
	s.McKubes, s.Claims, s.Migrations = maps.Clone(s.McKubes), maps.Clone(s.Claims), maps.Clone(s.Migrations)
	return s
}

// Disrupting returns the names of pool's NodeClaims whose node is on its way out: tainted for
// disruption or being deleted. It is what a disruption budget counts: not a NodeClaim whose node is drained and whose machine is
// ending, which stays until its finalizer goes, and longer where the controller dies meanwhile. An empty pool means all.
func (s State) Disrupting(pool string) []string {
	var names []string
	for name, claim := range s.NodeClaims {
		if pool != "" && claim.Labels[karpenterv1.NodePoolLabelKey] != pool {
			continue
		}
		if claim.StatusConditions().Get(karpenterv1.ConditionTypeInstanceTerminating).IsTrue() {
			continue
		}
		node := s.Nodes[claim.Status.NodeName]
		if !claim.DeletionTimestamp.IsZero() || IsTainted(node) || (node != nil && !node.DeletionTimestamp.IsZero()) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Initialized returns the names of pool's NodeClaims that can run pods: initialised and not on
// their way out. An empty pool means all.
func (s State) Initialized(pool string) []string {
	leaving := s.Disrupting(pool)
	var names []string
	for name, claim := range s.NodeClaims {
		if pool != "" && claim.Labels[karpenterv1.NodePoolLabelKey] != pool {
			continue
		}
		if IsInitialized(claim) && claim.DeletionTimestamp.IsZero() && !slices.Contains(leaving, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// PricePerHour is what the NodeClaims that have a machine cost together, in USD per hour.
func (s State) PricePerHour() float64 {
	var sum float64
	for _, claim := range s.NodeClaims {
		sum += Price(claim)
	}
	return sum
}

// Price is what the machine of a NodeClaim costs in USD per hour; 0 before it is launched.
func Price(claim *karpenterv1.NodeClaim) float64 {
	price, err := strconv.ParseFloat(claim.Annotations[mckubev1alpha1.AnnotationPricePerHour], 64)
	if err != nil {
		return 0
	}
	return price
}

// IsInitialized tells whether a NodeClaim's node has joined with everything pods need.
func IsInitialized(claim *karpenterv1.NodeClaim) bool {
	return claim.StatusConditions().Get(karpenterv1.ConditionTypeInitialized).IsTrue()
}

// IsTainted tells whether the node carries the taint of a disruption. A nil node does not.
func IsTainted(node *corev1.Node) bool {
	return node != nil && slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == karpenterv1.DisruptedTaintKey
	})
}
