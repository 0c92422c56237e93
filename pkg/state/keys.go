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

// coreRef is a core of the cluster and a bandwidth by which it is found. Bandwidths of a core fit 32 bits.
type coreRef struct {
	ppm  int32
	core int32
	node string
}

// byBandwidth orders cores by bandwidth.
type byBandwidth coreRef

func (k byBandwidth) compare(o byBandwidth) int {
	if c := cmp.Compare(k.ppm, o.ppm); c != 0 {
		return c
	}
	if c := strings.Compare(k.node, o.node); c != 0 {
		return c
	}
	return cmp.Compare(k.core, o.core)
}

// byNumber orders cores by number, then by bandwidth.
type byNumber coreRef

func (k byNumber) compare(o byNumber) int {
	if c := cmp.Compare(k.core, o.core); c != 0 {
		return c
	}
	if c := cmp.Compare(k.ppm, o.ppm); c != 0 {
		return c
	}
	return strings.Compare(k.node, o.node)
}

// bounded is a bandwidth as a key: what no core has is as good as the most that fits.
func bounded(v rt.PPM) int32 {
	return int32(min(max(v, 0), 2*rt.OneCore))
}
