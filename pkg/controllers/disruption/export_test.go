package disruption

import (
	"context"

	"k8s.io/utils/clock"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
)

// NewFiltered makes a filtered method of two instances of a method.
func NewFiltered(d Dependencies, quiet, all disruption.Method) disruption.Method {
	return newFiltered(d, quiet, all)
}

// NewRepacking is repacking by itself.
func NewRepacking(d Dependencies) disruption.Method { return newRepacking(d, newRepackAttempts()) }

// EndPass ends a pass of the loop for a filtered method.
func EndPass(m disruption.Method) { m.(*filtered).endPass() }

// NewEarlyClock is the clock of the standard methods.
func NewEarlyClock(c clock.Clock, trigger *Trigger) clock.Clock {
	return &earlyClock{Clock: c, trigger: trigger}
}

// BeginPass begins a pass.
func (t *Trigger) BeginPass() { t.beginPass() }

// Search begins a search that the trigger ends.
var Search = (*Trigger).search

// Source feeds the loop with the trigger's requests.
var Source = (*Trigger).source

// Stop ends it.
func (s *search) Stop() { s.stop() }

// Pending tells whether a caller of Fire waits for the next pass.
func (t *Trigger) Pending() bool { return t.pending() }

// Instances are those of each standard method: for nodes without real-time work, and for all.
func Instances(ctx context.Context, d Dependencies) (out [][2]disruption.Method) {
	for _, m := range standardMethods(ctx, d) {
		out = append(out, [2]disruption.Method{m.Method, m.any})
	}
	return out
}
