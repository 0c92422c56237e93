package orchestration

import (
	"cmp"
	"slices"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
)

// ForCause lists the actions for a cause, under way or over, by age and name: what was done for it, and what was
// tried. They are kept for as long as it is asked. They must not be changed. The error is ErrNotReady.
func (q *Queue) ForCause(cause string) ([]*v1alpha1.RTAction, error) {
	if err := q.Ready(); err != nil {
		return nil, err
	}
	q.remember(cause, q.Clock.Now())
	all := q.recall(func(r *register) []string { return r.causes.of(cause) })
	slices.SortFunc(all, func(a, b *v1alpha1.RTAction) int {
		first, _ := record.Read(a) // for their times
		second, _ := record.Read(b)
		return cmp.Or(first.Since.Compare(second.Since), strings.Compare(a.Name, b.Name))
	})
	return all, nil
}
