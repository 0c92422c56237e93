package state

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// dirty is what has to be derived again.
type dirty struct {
	pods    map[types.UID]bool
	nodes   map[string]bool
	mckubes map[pair]bool
	// booked are cores on which only reservations have changed.
	booked []booked
	// former are McKubes that governed a pod which is gone, or may no longer be theirs.
	former []pair
}

// booked is a core of a node.
type booked struct {
	node string
	core int
}

func newDirty() *dirty {
	return &dirty{pods: map[types.UID]bool{}, nodes: map[string]bool{}, mckubes: map[pair]bool{}}
}

func (d *dirty) node(name string) {
	if name != "" {
		d.nodes[name] = true
	}
}

func (d *dirty) pod(uid types.UID) {
	if uid != "" {
		d.pods[uid] = true
	}
}

// apply puts an object in the place of its predecessor.
func (s *Snapshot) apply(obj runtime.Object, d *dirty) error {
	switch o := obj.(type) {
	case *corev1.Node:
		s.nodes = s.nodes.put(pair{first: o.Name}, parseNode(o))
		d.node(o.Name)
	case *v1alpha1.RTNode:
		s.rtNodes = s.rtNodes.put(pair{first: o.Name}, o)
		d.node(o.Name)
	case *resourcev1.ResourceSlice:
		s.putSlice(o, d)
	case *resourcev1.ResourceClaimTemplate:
		s.templates = s.templates.put(pair{o.Namespace, o.Name}, o.UID)
	case *resourcev1.ResourceClaim:
		s.putClaim(o, d)
	case *mcv1.McKube:
		s.putMcKube(parseMcKube(o), d)
	case *corev1.Pod:
		s.putPod(parsePod(o), d)
	case *v1alpha1.RTAction:
		return s.putAction(o, d)
	default:
		return fmt.Errorf("reading %T: not a kind that the state is made from", obj)
	}
	return nil
}

// forget removes an object unless another has taken its name.
func (s *Snapshot) forget(obj runtime.Object, d *dirty) error {
	switch o := obj.(type) {
	case *corev1.Node:
		if old, ok := s.nodes.get(pair{first: o.Name}); ok && old.uid == o.UID {
			s.nodes = s.nodes.remove(pair{first: o.Name})
			d.node(o.Name)
		}
	case *v1alpha1.RTNode:
		if old, ok := s.rtNodes.get(pair{first: o.Name}); ok && old.UID == o.UID {
			s.rtNodes = s.rtNodes.remove(pair{first: o.Name})
			d.node(o.Name)
		}
	case *resourcev1.ResourceSlice:
		s.dropSlice(o.Name, o.UID, d)
	case *resourcev1.ResourceClaimTemplate:
		if uid, ok := s.templates.get(pair{o.Namespace, o.Name}); ok && uid == o.UID {
			s.templates = s.templates.remove(pair{o.Namespace, o.Name})
		}
	case *resourcev1.ResourceClaim:
		s.dropClaim(o.UID, d)
	case *mcv1.McKube:
		s.dropMcKube(pair{o.Namespace, o.Name}, o.UID, d)
	case *corev1.Pod:
		s.dropPod(o.UID, d)
	case *v1alpha1.RTAction:
		s.dropAction(o.Name, d)
	default:
		return fmt.Errorf("reading %T: not a kind that the state is made from", obj)
	}
	return nil
}

func (s *Snapshot) putSlice(o *resourcev1.ResourceSlice, d *dirty) {
	if old, ok := s.slices.get(pair{first: o.Name}); ok {
		s.dropSlice(old.name, old.uid, d)
	}
	parsed := parseSlice(o)
	if parsed == nil {
		return
	}
	s.slices = s.slices.put(pair{first: parsed.name}, parsed)
	s.nodeSlices = link(s.nodeSlices, parsed.node, parsed.name)
	d.node(parsed.node)
}

func (s *Snapshot) dropSlice(name string, uid types.UID, d *dirty) {
	old, ok := s.slices.get(pair{first: name})
	if !ok || old.uid != uid {
		return
	}
	s.slices = s.slices.remove(pair{first: name})
	s.nodeSlices = unlink(s.nodeSlices, old.node, name)
	d.node(old.node)
}

func (s *Snapshot) putClaim(o *resourcev1.ResourceClaim, d *dirty) {
	name := pair{o.Namespace, o.Name}
	if old, ok := s.claimNames.get(name); ok {
		s.dropClaim(old, d)
	}
	claim := parseClaim(o)
	if claim == nil {
		return
	}
	s.claimNames = s.claimNames.put(name, claim.UID)
	s.claims = s.claims.put(byUID(claim.UID), claim)
	s.podClaims = link(s.podClaims, string(claim.PodUID), string(claim.UID))
	for _, node := range claim.nodes() {
		s.nodeClaims = link(s.nodeClaims, node, string(claim.UID))
		d.node(node)
	}
	d.pod(claim.PodUID)
}

func (s *Snapshot) dropClaim(uid types.UID, d *dirty) {
	old, ok := s.claims.get(byUID(uid))
	if !ok {
		return
	}
	s.claims = s.claims.remove(byUID(uid))
	s.claimNames = s.claimNames.remove(pair{old.Namespace, old.Name})
	s.podClaims = unlink(s.podClaims, string(old.PodUID), string(uid))
	for _, node := range old.nodes() {
		s.nodeClaims = unlink(s.nodeClaims, node, string(uid))
		d.node(node)
	}
	d.pod(old.PodUID)
}

// nodes are those on which the claim has a share.
func (c *ClaimView) nodes() []string {
	if !c.Allocated() {
		return nil
	}
	out := []string{c.Node}
	for _, f := range c.further {
		out = append(out, f.node)
	}
	return out
}

func (s *Snapshot) putMcKube(m *mckube, d *dirty) {
	key := pair{m.Namespace, m.Name}
	if old, ok := s.mckubes.get(key); ok {
		s.dropMcKube(key, old.UID, d)
	}
	s.mckubes = s.mckubes.put(key, m)
	if m.selector != nil {
		s.byLabel = link(s.byLabel, handle(m), m.Name)
	} else if m.Spec.Podname != "" {
		s.byPodname = link(s.byPodname, m.Namespace+"/"+m.Spec.Podname, m.Name)
	}
	d.mckubes[key] = true
}

func (s *Snapshot) dropMcKube(key pair, uid types.UID, d *dirty) {
	old, ok := s.mckubes.get(key)
	if !ok || old.UID != uid {
		return
	}
	s.mckubes = s.mckubes.remove(key)
	if old.selector != nil {
		s.byLabel = unlink(s.byLabel, handle(old), old.Name)
	} else {
		s.byPodname = unlink(s.byPodname, old.Namespace+"/"+old.Spec.Podname, old.Name)
	}
	for _, pod := range linked(s.governs, string(uid)) {
		d.pod(types.UID(pod))
	}
	d.mckubes[key] = true
}

// putPod leaves what is derived to settle, which finds the predecessor's in the record.
func (s *Snapshot) putPod(p *PodView, d *dirty) {
	name := pair{p.Namespace, p.Name}
	if old, ok := s.podNames.get(name); ok && old != p.UID {
		s.dropPod(old, d)
	}
	if old, ok := s.Pod(p.UID); ok {
		p.Governed = old.Governed
		if old.NodeName != p.NodeName {
			s.nodePods = unlink(s.nodePods, old.NodeName, string(p.UID))
			d.node(old.NodeName)
		}
	}
	s.pods = s.pods.put(byUID(p.UID), p)
	s.podNames = s.podNames.put(name, p.UID)
	s.preempting = s.preempting.remove(byUID(p.UID))
	if p.Preempting != nil {
		s.preempting = s.preempting.put(byUID(p.UID), struct{}{})
	}
	d.pod(p.UID)
}

func (s *Snapshot) dropPod(uid types.UID, d *dirty) {
	old, ok := s.Pod(uid)
	if !ok {
		return
	}
	s.pods = s.pods.remove(byUID(uid))
	s.podNames = s.podNames.remove(pair{old.Namespace, old.Name})
	s.preempting = s.preempting.remove(byUID(uid))
	s.nodePods = unlink(s.nodePods, old.NodeName, string(uid))
	for _, g := range old.Governed {
		s.ungovern(g, uid, d)
	}
	d.node(old.NodeName)
	d.pod(uid)
}
