package state

import "iter"

// ordered is a key of a tree.
type ordered[K any] interface {
	// compare is negative when the key comes before the other, 0 when they are the same.
	compare(other K) int
}

// tree is an ordered map that never changes: put and remove return a new one that shares all but the
// path to the key. The zero value is empty. It is a weight-balanced tree (Nievergelt and Reingold 1973)
// with the balance of Hirai and Yamamoto (J. Functional Programming 21, 2011).
type tree[K ordered[K], V any] struct{ root *branch[K, V] }

type branch[K ordered[K], V any] struct {
	left, right *branch[K, V]
	value       V
	key         K
	size        int32
}

// A subtree is at most delta times as heavy as its sibling; gamma chooses between one rotation and two.
const delta, gamma = 3, 2

func (t tree[K, V]) len() int { return int(t.root.weight()) }

func (t tree[K, V]) get(key K) (value V, ok bool) {
	for b := t.root; b != nil; {
		switch c := key.compare(b.key); {
		case c < 0:
			b = b.left
		case c > 0:
			b = b.right
		default:
			return b.value, true
		}
	}
	return value, false
}

func (t tree[K, V]) put(key K, value V) tree[K, V] {
	return tree[K, V]{t.root.put(key, value)}
}

func (t tree[K, V]) remove(key K) tree[K, V] {
	if _, ok := t.get(key); !ok {
		return t
	}
	return tree[K, V]{t.root.remove(key)}
}

// all is every entry, in order.
func (t tree[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { t.root.ascend(yield) }
}

// from is every entry that is not before the key, in order.
func (t tree[K, V]) from(key K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { t.root.ascendFrom(key, yield) }
}

// before is every entry that is before the key, the last first.
func (t tree[K, V]) before(key K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { t.root.descendBefore(key, yield) }
}

// last is the last entry.
func (t tree[K, V]) last() (key K, ok bool) {
	b := t.root
	if b == nil {
		return key, false
	}
	for b.right != nil {
		b = b.right
	}
	return b.key, true
}

// countFrom is how many entries are not before the key.
func (t tree[K, V]) countFrom(key K) int {
	n := 0
	for b := t.root; b != nil; {
		if key.compare(b.key) > 0 {
			b = b.right
			continue
		}
		n += 1 + int(b.right.weight())
		b = b.left
	}
	return n
}

func (b *branch[K, V]) weight() int32 {
	if b == nil {
		return 0
	}
	return b.size
}

func (b *branch[K, V]) ascend(yield func(K, V) bool) bool {
	return b == nil || b.left.ascend(yield) && yield(b.key, b.value) && b.right.ascend(yield)
}

func (b *branch[K, V]) ascendFrom(key K, yield func(K, V) bool) bool {
	if b == nil {
		return true
	}
	if key.compare(b.key) > 0 {
		return b.right.ascendFrom(key, yield)
	}
	return b.left.ascendFrom(key, yield) && yield(b.key, b.value) && b.right.ascend(yield)
}

func (b *branch[K, V]) descend(yield func(K, V) bool) bool {
	return b == nil || b.right.descend(yield) && yield(b.key, b.value) && b.left.descend(yield)
}

func (b *branch[K, V]) descendBefore(key K, yield func(K, V) bool) bool {
	if b == nil {
		return true
	}
	if key.compare(b.key) <= 0 {
		return b.left.descendBefore(key, yield)
	}
	return b.right.descendBefore(key, yield) && yield(b.key, b.value) && b.left.descend(yield)
}

func (b *branch[K, V]) put(key K, value V) *branch[K, V] {
	if b == nil {
		return &branch[K, V]{key: key, value: value, size: 1}
	}
	switch c := key.compare(b.key); {
	case c < 0:
		return b.with(b.left.put(key, value), b.right)
	case c > 0:
		return b.with(b.left, b.right.put(key, value))
	default:
		return &branch[K, V]{left: b.left, right: b.right, value: value, key: key, size: b.size}
	}
}

// remove expects the key to be there.
func (b *branch[K, V]) remove(key K) *branch[K, V] {
	switch c := key.compare(b.key); {
	case c < 0:
		return b.with(b.left.remove(key), b.right)
	case c > 0:
		return b.with(b.left, b.right.remove(key))
	case b.left == nil:
		return b.right
	case b.right == nil:
		return b.left
	case b.left.size > b.right.size:
		last := b.left
		for last.right != nil {
			last = last.right
		}
		return last.with(b.left.remove(last.key), b.right)
	default:
		first := b.right
		for first.left != nil {
			first = first.left
		}
		return first.with(b.left, b.right.remove(first.key))
	}
}

// with is a balanced tree of the branch's entry between two trees, one of which has changed by one entry.
func (b *branch[K, V]) with(left, right *branch[K, V]) *branch[K, V] {
	l, r := left.weight()+1, right.weight()+1
	switch {
	case r > delta*l && right.left.weight()+1 < gamma*(right.right.weight()+1):
		return right.over(b.over(left, right.left), right.right)
	case r > delta*l:
		return right.left.over(b.over(left, right.left.left), right.over(right.left.right, right.right))
	case l > delta*r && left.right.weight()+1 < gamma*(left.left.weight()+1):
		return left.over(left.left, b.over(left.right, right))
	case l > delta*r:
		return left.right.over(left.over(left.left, left.right.left), b.over(left.right.right, right))
	default:
		return b.over(left, right)
	}
}

// over is the branch's entry above two trees.
func (b *branch[K, V]) over(left, right *branch[K, V]) *branch[K, V] {
	return &branch[K, V]{left: left, right: right, value: b.value, key: b.key, size: left.weight() + right.weight() + 1}
}
