package state

import (
	"slices"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

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
