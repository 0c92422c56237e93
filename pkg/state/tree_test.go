package state

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type number int

func (n number) compare(o number) int { return cmp.Compare(n, o) }

// A tree holds what a map would, in order, stays balanced, and no change reaches the trees before it.
func TestTreeIsAnOrderedMapThatNeverChanges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var now tree[number, string]
		model := map[number]string{}
		type version struct {
			tree  tree[number, string]
			model map[number]string
		}
		var versions []version
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			versions = append(versions, version{now, maps.Clone(model)})
			key := number(rapid.IntRange(0, 40).Draw(t, "key"))
			if rapid.Bool().Draw(t, "put") {
				value := rapid.StringN(0, 3, -1).Draw(t, "value")
				now, model[key] = now.put(key, value), value
			} else {
				now = now.remove(key)
				delete(model, key)
			}
			balanced(t, now.root)
		}
		for _, v := range append(versions, version{now, model}) {
			same(t, v.tree, v.model, number(rapid.IntRange(-1, 41).Draw(t, "probe")))
		}
	})
}

func balanced(t *rapid.T, b *branch[number, string]) {
	if b == nil {
		return
	}
	l, r := b.left.weight(), b.right.weight()
	if b.size != l+r+1 {
		t.Fatalf("size is %d over %d and %d", b.size, l, r)
	}
	if l+1 > delta*(r+1) || r+1 > delta*(l+1) {
		t.Fatalf("%d beside %d is out of balance", l, r)
	}
	balanced(t, b.left)
	balanced(t, b.right)
}

func same(t *rapid.T, got tree[number, string], want map[number]string, probe number) {
	keys := slices.Sorted(maps.Keys(want))
	if got.len() != len(want) || !maps.Equal(maps.Collect(got.all()), want) {
		t.Fatalf("tree holds %v, want %v", maps.Collect(got.all()), want)
	}
	from, _ := slices.BinarySearch(keys, probe)
	var ascending, descending []number
	for k := range got.from(probe) {
		ascending = append(ascending, k)
	}
	for k := range got.before(probe) {
		descending = append(descending, k)
	}
	slices.Reverse(descending)
	if !slices.Equal(ascending, keys[from:]) || !slices.Equal(descending, keys[:from]) || got.countFrom(probe) != len(keys)-from {
		t.Fatalf("around %d: %v and %v (%d) of %v", probe, descending, ascending, got.countFrom(probe), keys)
	}
	if last, ok := got.last(); ok != (len(keys) > 0) || ok && last != keys[len(keys)-1] {
		t.Fatalf("last is %d of %v", last, keys)
	}
	if value, ok := got.get(probe); ok != (from < len(keys) && keys[from] == probe) || value != want[probe] {
		t.Fatalf("get %d gives %q, %v", probe, value, ok)
	}
}
