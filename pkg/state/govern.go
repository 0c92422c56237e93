package state

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// settle derives what is dirty: first which McKubes govern which pods, then the nodes.
func (s *Snapshot) settle(d *dirty) {
	for uid := range d.pods {
		s.regovern(uid, d)
	}
	for name := range d.nodes {
		s.rederive(name)
	}
	for _, b := range d.booked {
		if !d.nodes[b.node] {
			s.rebook(b)
		}
	}
}

// matched marks the pods that the changed McKubes match now.
func (s *Snapshot) matched(d *dirty) {
	for key := range d.mckubes {
		s.matchedBy(key, d)
	}
}

func (s *Snapshot) matchedBy(key pair, d *dirty) {
	m, ok := s.mckubes.get(key)
	if !ok {
		return
	}
	if m.selector == nil {
		if uid, ok := s.podNames.get(pair{m.Namespace, m.Spec.Podname}); ok {
			d.pod(uid)
		}
		return
	}
	for name, uid := range s.podNames.from(pair{first: m.Namespace}) {
		if name.first != m.Namespace {
			return
		}
		if pod, ok := s.Pod(uid); ok && m.matches(pod.Namespace, pod.Name, pod.Labels) {
			d.pod(uid)
		}
	}
}

// regovern finds again which McKubes govern the pod's containers, and marks the nodes that this concerns.
func (s *Snapshot) regovern(uid types.UID, d *dirty) {
	for _, claim := range s.Claims(uid) {
		for _, node := range claim.nodes() {
			d.node(node)
		}
	}
	old, ok := s.Pod(uid)
	if !ok {
		return
	}
	governed := s.govern(old)
	if len(governed) == 0 && len(old.Governed) == 0 {
		return
	}
	for _, g := range old.Governed {
		s.ungovern(g, uid, d)
	}
	pod := *old
	pod.Governed = governed
	s.pods = s.pods.put(byUID(uid), &pod)
	for _, g := range governed {
		s.governs = link(s.governs, string(g.McKube.UID), string(uid))
		for _, rival := range g.Rivals {
			s.governs = link(s.governs, string(rival.UID), string(uid))
		}
	}
	s.nodePods = unlink(s.nodePods, pod.NodeName, string(uid))
	if len(governed) > 0 {
		s.nodePods = link(s.nodePods, pod.NodeName, string(uid))
	}
	d.node(pod.NodeName)
}

// ungovern takes the links of a governed container away.
func (s *Snapshot) ungovern(g Governed, uid types.UID, d *dirty) {
	d.former = append(d.former, pair{g.McKube.Namespace, g.McKube.Name})
	s.governs = unlink(s.governs, string(g.McKube.UID), string(uid))
	for _, rival := range g.Rivals {
		d.former = append(d.former, pair{rival.Namespace, rival.Name})
		s.governs = unlink(s.governs, string(rival.UID), string(uid))
	}
	if g.Claim == nil {
		return
	}
	for _, claim := range append([]*ClaimView{g.Claim}, g.Further...) {
		d.node(claim.Node)
	}
}

// govern lists the governed containers of the pod, by name.
func (s *Snapshot) govern(pod *PodView) []Governed {
	matching := s.matching(pod.Namespace, pod.Name, pod.Labels)
	if len(matching) == 0 {
		return nil
	}
	// A McKube without settings governs nothing yet, so it competes with no other McKube.
	slices.SortStableFunc(matching, func(a, b *mcv1.McKube) int { return without(a) - without(b) })
	shape := pod.shape()
	var out []Governed
	for _, m := range matching {
		container, err := mcv1.ContainerOf(m, shape)
		i := slices.IndexFunc(out, func(g Governed) bool { return g.Container == container })
		if err == nil && i >= 0 {
			if m.Spec.RTSettings != nil {
				out[i].Rivals = append(out[i].Rivals, m)
			}
			continue
		}
		g := Governed{Container: container, McKube: m, Err: err}
		if err == nil {
			g.Server, g.Err = rtdra.ServerOf(m, pod.UID, container)
			if claims := s.claimsOf(pod, container); len(claims) > 0 {
				g.Claim, g.Further = claims[0], claims[1:]
			}
		}
		out = append(out, g)
	}
	slices.SortStableFunc(out, func(a, b Governed) int { return strings.Compare(a.Container, b.Container) })
	return out
}

// without is 1 for a McKube without settings, else 0.
func without(m *mcv1.McKube) int {
	if m.Spec.RTSettings == nil {
		return 1
	}
	return 0
}

// shape is as much of the Pod as tells which containers it has.
func (p *PodView) shape() *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	for _, name := range p.Containers {
		out.Spec.Containers = append(out.Spec.Containers, corev1.Container{Name: name})
	}
	always := corev1.ContainerRestartPolicyAlways
	for _, name := range p.Sidecars {
		out.Spec.InitContainers = append(out.Spec.InitContainers, corev1.Container{Name: name, RestartPolicy: &always})
	}
	return out
}

// claimsOf are the container's claims, those that the pod names and those that were made for it later:
// first those that were given a core, then by age.
func (s *Snapshot) claimsOf(pod *PodView, container string) []*ClaimView {
	out := slices.DeleteFunc(s.Claims(pod.UID), func(c *ClaimView) bool { return !pod.uses(c, container) })
	slices.SortFunc(out, func(a, b *ClaimView) int {
		if a.Allocated() != b.Allocated() {
			return cmp.Compare(b.Core, a.Core) // rt.NoCore comes last
		}
		return cmp.Or(a.Created.Compare(b.Created.Time), strings.Compare(a.Name, b.Name))
	})
	return out
}

// uses tells whether the claim is the container's.
func (p *PodView) uses(claim *ClaimView, container string) bool {
	if claim.Namespace != p.Namespace {
		return false
	}
	for _, c := range p.Claims {
		if c.Object == claim.Name || c.Object == "" && c.Name == claim.podClaim {
			return c.Container == container
		}
	}
	return claim.podClaim == rtdra.ClaimName(container)
}
