package state

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// Snapshot is the state at one moment. It never changes, and neither must what it hands out.
type Snapshot struct {
	granularity int64

	// What was read.
	nodes        tree[pair, *node]            // by name
	slices       tree[pair, *slice]           // by name
	rtNodes      tree[pair, *v1alpha1.RTNode] // by name
	mckubes      tree[pair, *mckube]          // by namespace and name
	templates    tree[pair, types.UID]        // by namespace and name
	pods         tree[pair, *PodView]         // by UID
	claims       tree[pair, *ClaimView]       // by UID
	reservations tree[pair, *Reservation]     // by key

	// How to find it.
	podNames         tree[pair, types.UID] // namespace and name
	claimNames       tree[pair, types.UID] // namespace and name
	nodeSlices       links                 // node, slice
	byPodname        links                 // namespace/pod, McKube
	byLabel          links                 // namespace/label=value (or namespace/ for other selectors), McKube
	podClaims        links                 // pod UID, claim UID
	nodeClaims       links                 // node, claim UID
	nodeReservations links                 // node, key
	preempting       set[pair]             // pod UID

	// What follows from it.
	governs  links // McKube UID, pod UID
	nodePods links // node, UID of a governed pod that is bound to it
	views    tree[pair, *NodeView]
	index    index
}

// Granularity is what is charged to every budget at least, in microseconds.
func (s *Snapshot) Granularity() int64 { return s.granularity }

// NodeView finds a node that has real-time cores or servers.
func (s *Snapshot) NodeView(name string) (*NodeView, bool) {
	return s.views.get(pair{first: name})
}

// Nodes is every node that has real-time cores or servers, by name.
func (s *Snapshot) Nodes() iter.Seq[*NodeView] {
	return func(yield func(*NodeView) bool) {
		for _, n := range s.views.all() {
			if !yield(n) {
				return
			}
		}
	}
}

// Pod finds a pod by UID.
func (s *Snapshot) Pod(uid types.UID) (*PodView, bool) {
	return s.pods.get(byUID(uid))
}

// PodNamed finds the pod that has the name now.
func (s *Snapshot) PodNamed(namespace, name string) (*PodView, bool) {
	uid, ok := s.podNames.get(pair{namespace, name})
	if !ok {
		return nil, false
	}
	return s.Pod(uid)
}

// McKube finds a McKube by name.
func (s *Snapshot) McKube(namespace, name string) (*mcv1.McKube, bool) {
	m, ok := s.mckubes.get(pair{namespace, name})
	if !ok {
		return nil, false
	}
	return m.McKube, true
}

// Template tells whether there is a ResourceClaimTemplate of the name.
func (s *Snapshot) Template(namespace, name string) bool {
	_, ok := s.templates.get(pair{namespace, name})
	return ok
}

// McKubesFor lists the McKubes that match a pod, which need not exist yet: the oldest first, then by
// name. One that is being deleted matches nothing.
func (s *Snapshot) McKubesFor(pod *corev1.Pod) []*mcv1.McKube {
	return s.matching(pod.Namespace, pod.Name, pod.Labels)
}

// PodsFor lists the pods that a McKube matches, by name.
func (s *Snapshot) PodsFor(m *mcv1.McKube) []*PodView {
	var out []*PodView
	for _, uid := range linked(s.governs, string(m.UID)) {
		if pod, ok := s.Pod(types.UID(uid)); ok {
			out = append(out, pod)
		}
	}
	slices.SortFunc(out, func(a, b *PodView) int {
		return pair{a.Name, string(a.UID)}.compare(pair{b.Name, string(b.UID)})
	})
	return out
}

// Claims lists the claims of a pod for real-time cores.
func (s *Snapshot) Claims(pod types.UID) []*ClaimView {
	var out []*ClaimView
	for _, uid := range linked(s.podClaims, string(pod)) {
		if claim, ok := s.claims.get(pair{first: uid}); ok {
			out = append(out, claim)
		}
	}
	return out
}

// matching are the McKubes for a pod of that name and labels.
func (s *Snapshot) matching(namespace, name string, set labels.Set) []*mcv1.McKube {
	candidates := linked(s.byPodname, namespace+"/"+name)
	candidates = append(candidates, linked(s.byLabel, namespace+"/")...)
	for key, value := range set {
		candidates = append(candidates, linked(s.byLabel, namespace+"/"+key+"="+value)...)
	}
	var out []*mcv1.McKube
	for _, c := range candidates {
		m, ok := s.mckubes.get(pair{namespace, c})
		if ok && m.DeletionTimestamp == nil && m.matches(namespace, name, set) {
			out = append(out, m.McKube)
		}
	}
	slices.SortFunc(out, older)
	return out
}

// older orders McKubes: the oldest governs, then the first by name.
func older(a, b *mcv1.McKube) int {
	if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
		return c
	}
	return pair{a.Name, string(a.UID)}.compare(pair{b.Name, string(b.UID)})
}

// handle is the label by which pods are led to a McKube with a selector: the first of its matchLabels.
func handle(m *mckube) string {
	first := ""
	for key, value := range m.Spec.Selector.MatchLabels {
		if label := key + "=" + value; first == "" || label < first {
			first = label
		}
	}
	return m.Namespace + "/" + first
}
