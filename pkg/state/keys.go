package state

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// pair is a key of two names: namespace and name, node and UID, ...
type pair struct{ first, second string }

func (p pair) compare(o pair) int {
	if c := strings.Compare(p.first, o.first); c != 0 {
		return c
	}
	return strings.Compare(p.second, o.second)
}

func byUID(uid types.UID) pair { return pair{first: string(uid)} }

// set is a tree of keys.
type set[K ordered[K]] = tree[K, struct{}]

// links is a relation: every entry of the first name is in pairs (first, second).
type links = set[pair]

func link(t links, first, second string) links {
	if first == "" || second == "" {
		return t
	}
	return t.put(pair{first, second}, struct{}{})
}

func unlink(t links, first, second string) links { return t.remove(pair{first, second}) }

// linked is every second name that the first is linked to, in order.
func linked(t links, first string) []string {
	var out []string
	for key := range t.from(pair{first: first}) {
		if key.first != first {
			break
		}
		out = append(out, key.second)
	}
	return out
}

// nodeID is a node's name in keys. The order of nodes in an index does not matter as long as it is always the same;
// by hash, most comparisons need not follow the pointer.
type nodeID struct{ name string }

// hashOf is FNV-1a.
func hashOf(name string) uint32 {
	h := uint32(2166136261)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return h
}

// coreRef is a core of the cluster and a bandwidth by which it is found. Bandwidths of a core fit 32 bits.
type coreRef struct {
	node *nodeID
	hash uint32 // of the node's name
	ppm  int32
	core int32
}

// compareNodes orders cores by node; no node comes first.
func (r coreRef) compareNodes(o coreRef) int {
	switch {
	case r.hash != o.hash:
		return cmp.Compare(r.hash, o.hash)
	case r.node == o.node:
		return 0
	case r.node == nil:
		return -1
	case o.node == nil:
		return 1
	default:
		return strings.Compare(r.node.name, o.node.name)
	}
}

// byBandwidth orders cores by bandwidth.
type byBandwidth coreRef

func (k byBandwidth) compare(o byBandwidth) int {
	if k.ppm != o.ppm {
		return cmp.Compare(k.ppm, o.ppm)
	}
	if c := coreRef(k).compareNodes(coreRef(o)); c != 0 {
		return c
	}
	return cmp.Compare(k.core, o.core)
}

// byNumber orders cores by number, then by bandwidth.
type byNumber coreRef

func (k byNumber) compare(o byNumber) int {
	if k.core != o.core {
		return cmp.Compare(k.core, o.core)
	}
	if k.ppm != o.ppm {
		return cmp.Compare(k.ppm, o.ppm)
	}
	return coreRef(k).compareNodes(coreRef(o))
}

// bounded is a bandwidth as a key: what no core has is as good as the most that fits.
func bounded(v rt.PPM) int32 {
	return int32(min(max(v, 0), 2*rt.OneCore))
}
