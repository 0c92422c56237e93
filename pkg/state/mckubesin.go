package state

import (
	"iter"
	"slices"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// McKubes are all McKubes, those that are being deleted too, by namespace and name.
func (s *Snapshot) McKubes() iter.Seq[*mcv1.McKube] {
	return func(yield func(*mcv1.McKube) bool) {
		for _, m := range s.mckubes.all() {
			if !yield(m.McKube) {
				return
			}
		}
	}
}

// McKubesIn lists the McKubes of a namespace that are not being deleted: the oldest first, then by name.
func (s *Snapshot) McKubesIn(namespace string) []*mcv1.McKube {
	var out []*mcv1.McKube
	for key, m := range s.mckubes.from(pair{first: namespace}) {
		if key.first != namespace {
			break
		}
		if m.DeletionTimestamp == nil {
			out = append(out, m.McKube)
		}
	}
	slices.SortFunc(out, older)
	return out
}
