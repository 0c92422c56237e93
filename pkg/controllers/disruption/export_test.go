package disruption

import (
	"context"

	"k8s.io/utils/clock"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
)

// NewMannered gives a method manners, with two instances of it.
func NewMannered(d Dependencies, quiet, all disruption.Method) disruption.Method {
	return newMannered(d, quiet, all)
}

// NewRepacking is repacking by itself.
func NewRepacking(d Dependencies) disruption.Method { return newRepacking(d, newRepackAttempts()) }

// EndPass ends a pass of the loop for a method with manners.
func EndPass(m disruption.Method) { m.(*mannered).endPass() }

// NewHurried is the clock of the standard methods.
func NewHurried(c clock.Clock, bell *Doorbell) clock.Clock { return &hurried{Clock: c, bell: bell} }

// Answer begins a pass.
func (d *Doorbell) Answer() { d.answer() }

// Search begins a search that the doorbell ends.
var Search = (*Doorbell).search

// Source feeds the loop with what is rung.
var Source = (*Doorbell).source

// Stop ends it.
func (s *search) Stop() { s.stop() }

// Ringing tells whether somebody waits for the next pass.
func (d *Doorbell) Ringing() bool { return d.ringing() }

// Instances are those of each standard method: for nodes without real-time work, and for all.
func Instances(ctx context.Context, d Dependencies) (out [][2]disruption.Method) {
	for _, m := range standardMethods(ctx, d) {
		out = append(out, [2]disruption.Method{m.Method, m.any})
	}
	return out
}
