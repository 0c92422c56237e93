package state

import (
	"cmp"
	"slices"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// class is what cores must have in common for the same server to need the same bandwidth of each.
type class struct {
	policy      rt.Policy
	reserve     rt.PPM
	granularity int64
}

func (c class) compare(o class) int {
	return cmp.Or(cmp.Compare(c.policy, o.policy), cmp.Compare(c.reserve, o.reserve), cmp.Compare(c.granularity, o.granularity))
}

// Sizes of victim sets that cores are sorted by: one, two, and any number.
const (
	oneVictim = iota
	twoVictims
	anyVictims
	victimLevels
)

// index holds the cores that new servers may be placed on, by class. It is replaced, never changed.
type index struct{ classes []*shelf }

// shelf is the cores of a class.
type shelf struct {
	class
	// free sorts cores by what is free, numbers by their number and then by what is free.
	free    set[byBandwidth]
	numbers set[byNumber]
	// reach sorts cores by what would be free without their largest servers of lower criticality than
	// Middle (0) or High (1): without one, two or all of them.
	reach [2][victimLevels]set[byBandwidth]
}

// entry is how a core appears in the index.
type entry struct {
	class
	number, free int32
	// reach is -1 where the core has not as many servers to give.
	reach [2][victimLevels]int32
}

// replace takes a node's cores out as they were and puts them in as they are; either may be nil.
func (x index) replace(before, after *NodeView) index {
	old, now := before.entries(), after.entries()
	edit := edition{classes: x.classes}
	for len(old) > 0 || len(now) > 0 {
		switch {
		case len(now) == 0 || len(old) > 0 && old[0].number < now[0].number:
			edit.shelf(old[0].class).remove(old[0], before)
			old = old[1:]
		case len(old) == 0 || now[0].number < old[0].number:
			edit.shelf(now[0].class).put(now[0], after)
			now = now[1:]
		default:
			if old[0] != now[0] {
				edit.shelf(old[0].class).remove(old[0], before)
				edit.shelf(now[0].class).put(now[0], after)
			}
			old, now = old[1:], now[1:]
		}
	}
	return edit.finish()
}

// replaceCore takes out one core as it was and puts it in as it is.
func (x index) replaceCore(before, after *NodeView, id int) index {
	core := func(n *NodeView) (entry, bool) {
		c, ok := n.Core(id)
		if !ok || !n.takesNew() {
			return entry{}, false
		}
		return n.entry(c), true
	}
	old, was := core(before)
	now, is := core(after)
	edit := edition{classes: x.classes}
	if was && (!is || old != now) {
		edit.shelf(old.class).remove(old, before)
	}
	if is && (!was || old != now) {
		edit.shelf(now.class).put(now, after)
	}
	return edit.finish()
}

// edition is an index being changed: shelves are copied before their first change.
type edition struct {
	classes []*shelf
	own     []*shelf
}

func (e *edition) shelf(c class) *shelf {
	for _, s := range e.own {
		if s.class == c {
			return s
		}
	}
	if e.own == nil {
		e.classes = slices.Clone(e.classes)
	}
	i, found := slices.BinarySearchFunc(e.classes, c, func(s *shelf, c class) int { return s.compare(c) })
	copied := &shelf{class: c}
	if found {
		*copied = *e.classes[i]
		e.classes[i] = copied
	} else {
		e.classes = slices.Insert(e.classes, i, copied)
	}
	e.own = append(e.own, copied)
	return copied
}

func (e *edition) finish() index {
	if e.own != nil {
		e.classes = slices.DeleteFunc(e.classes, func(s *shelf) bool { return s.free.len() == 0 })
	}
	return index{e.classes}
}

func (s *shelf) put(e entry, n *NodeView) {
	at := func(ppm int32) coreRef { return coreRef{n.id, n.hash, ppm, e.number} }
	s.free = s.free.put(byBandwidth(at(e.free)), struct{}{})
	s.numbers = s.numbers.put(byNumber(at(e.free)), struct{}{})
	for b := range e.reach {
		for k, ppm := range e.reach[b] {
			if ppm >= 0 {
				s.reach[b][k] = s.reach[b][k].put(byBandwidth(at(ppm)), struct{}{})
			}
		}
	}
}

func (s *shelf) remove(e entry, n *NodeView) {
	at := func(ppm int32) coreRef { return coreRef{n.id, n.hash, ppm, e.number} }
	s.free = s.free.remove(byBandwidth(at(e.free)))
	s.numbers = s.numbers.remove(byNumber(at(e.free)))
	for b := range e.reach {
		for k, ppm := range e.reach[b] {
			if ppm >= 0 {
				s.reach[b][k] = s.reach[b][k].remove(byBandwidth(at(ppm)))
			}
		}
	}
}

// takesNew tells whether new servers may be placed on the node.
func (n *NodeView) takesNew() bool {
	return n != nil && n.Offered && n.Shut() == ""
}

// entries are the node's cores as they appear in the index, by number; none while it takes no new servers.
func (n *NodeView) entries() []entry {
	if !n.takesNew() {
		return nil
	}
	out := make([]entry, len(n.Cores))
	for i := range n.Cores {
		out[i] = n.entry(&n.Cores[i])
	}
	return out
}

func (n *NodeView) entry(c *CoreView) entry {
	e := entry{
		class:  class{policy: c.Policy, reserve: c.EscalationReserve, granularity: c.Granularity},
		number: int32(c.ID), free: bounded(c.Free),
	}
	for b, lower := range n.preemptible(c.ID) {
		e.reach[b] = reach(c.Free, lower)
	}
	return e
}

// preemptible are the bandwidths of a core's servers below Middle (0) and below High (1).
func (n *NodeView) preemptible(core int) (lower [2][]rt.PPM) {
	for i := range n.Servers {
		s := &n.Servers[i]
		if s.home() != core || s.Claimant() {
			continue
		}
		counts := n.counted(s, n.Granularity)
		ppm := counts.Charge(n.Granularity)
		for b := int(s.Criticality); b < len(lower); b++ {
			lower[b] = append(lower[b], ppm)
		}
	}
	return lower
}

// reach is what would be free without the largest one, two and all.
func reach(free rt.PPM, lower []rt.PPM) (out [victimLevels]int32) {
	slices.SortFunc(lower, func(a, b rt.PPM) int { return cmp.Compare(b, a) })
	out = [victimLevels]int32{-1, -1, -1}
	for i, ppm := range lower {
		free += ppm
		out[min(i, anyVictims)] = bounded(free)
	}
	return out
}
