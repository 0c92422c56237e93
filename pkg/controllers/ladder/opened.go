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

// mostOpened is how many nodes the controller opens for one pressure, one after another, while no pod goes to any other node.
const mostOpened = 3

// nodesOpened are the nodes that the controller asked for since a pod last went to another node for the pressure. Their results
// count against the next node, whichever pod would go there. Actions that did not begin or were withdrawn do not count. Actions
// for a less critical container do not count either: a more critical container does not wait for their results.
type nodesOpened struct {
	last *v1alpha1.RTAction
	// asked is how many, ready is how many of these became ready.
	asked, ready int32
}

func openedFor(answers []*v1alpha1.RTAction, of rt.Criticality) (out nodesOpened) {
	for _, o := range answers { // by age
		a, _ := record.Read(o) // for its phase, and its criticality
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

// ticket combines the record of an earlier request for the same with the results of the nodes opened so far.
func (n nodesOpened) ticket(t orchestration.Ticket, tried bool) (orchestration.Ticket, bool) {
	if n.last == nil {
		return t, tried
	}
	if t = rested(t, tried, n.last, n.asked); n.ready >= mostOpened {
		t.Again, t.Message = time.Time{}, fmt.Sprintf("%d nodes were opened for this pressure, and nobody went to any", n.ready)
	}
	return t, true
}

// rested adds the backoff after a number of similar attempts to a ticket. last is the last of these attempts. If the request
// itself was not tried, the ticket describes that attempt.
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
