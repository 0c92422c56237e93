package ladder

import (
	"fmt"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// mostOpened is how many nodes are opened for one pressure, one after another, while nobody goes to any other node.
const mostOpened = 3

// nodesOpened are those that were asked for for the pressure since somebody last went to another node for it: what came of them speaks against the
// next, whichever pod goes there. Those that did not begin, or were not wanted any longer, do not count, nor those for somebody less critical: whoever
// is more critical does not wait for what came of these.
type nodesOpened struct {
	last *v1alpha1.RTAction
	// asked is how many, ready how many of these became ready.
	asked, ready int32
}

func openedFor(answers []*v1alpha1.RTAction, of rt.Criticality) (out nodesOpened) {
	for _, o := range answers { // by age
		a, _ := record.Read(o) // for its phase, and whom it was for
		did := a.Phase == rules.Succeeded
		switch kind := rules.Kind(o.Spec.Kind); {
		case kind == rules.Migrate && did:
			out = nodesOpened{}
		case kind != rules.OpenNode || a.Criticality < of || a.Unwanted && !did:
		case did:
			out = nodesOpened{o, out.asked + 1, out.ready + 1}
		case a.Phase == rules.RolledBack || a.Phase == rules.Failed:
			out = nodesOpened{o, out.asked + 1, out.ready}
		}
	}
	return out
}

// ticket is what is known of one more, beside what is known of the same that was asked for before.
func (n nodesOpened) ticket(t orchestration.Ticket, tried bool) (orchestration.Ticket, bool) {
	if n.last == nil {
		return t, tried
	}
	if t = rested(t, tried, n.last, n.asked); n.ready >= mostOpened {
		t.Again, t.Message = time.Time{}, fmt.Sprintf("%d nodes were opened for this pressure, and nobody went to any", n.ready)
	}
	return t, true
}

// rested is a ticket once so many attempts at the like, of which one was the last, have rested, too, and counts as one of them; of what was not tried
// itself it is that one's.
func rested(t orchestration.Ticket, tried bool, last *v1alpha1.RTAction, asked int32) orchestration.Ticket {
	a, _ := record.Read(last) // for its times
	again := a.Entered.Add(orchestration.RestAfter(asked))
	if !tried {
		t = orchestration.Ticket{Name: last.Name, Phase: a.Phase, Attempt: asked, Message: last.Status.Message, Again: again}
	}
	t.Attempt = max(t.Attempt, asked)
	if !t.Again.IsZero() && again.After(t.Again) {
		t.Again = again
	}
	return t
}
