package orchestration

import (
	"cmp"
	"slices"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
)

// ForCause lists the actions for a cause, under way or over, by age and name: what was done for it, and what was
// tried. They are kept for as long as it is asked. They must not be changed.
func (q *Queue) ForCause(cause string) []*v1alpha1.RTAction {
	q.remember(cause, q.Clock.Now())
	all := q.ledger.all()
	q.lock.Lock()
	for _, o := range q.dropped {
		all = append(all, o)
	}
	q.lock.Unlock()
	all = slices.DeleteFunc(all, func(o *v1alpha1.RTAction) bool { return o.Spec.Cause != cause })
	slices.SortFunc(all, func(a, b *v1alpha1.RTAction) int {
		first, _ := record.Read(a) // for their times
		second, _ := record.Read(b)
		return cmp.Or(first.Since.Compare(second.Since), strings.Compare(a.Name, b.Name))
	})
	return all
}
