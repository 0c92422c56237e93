package rtruntime

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// changeRearranged is the reason of a server's change of core that an action has asked for.
const changeRearranged = "Rearranged"

// progressFrom is the entry of an action's progress that says on which cores the containers were: JSON, by server ID.
const progressFrom = "from"

// moves are what an action asks of a node: all of them, or none.
type moves struct {
	// action is the name of the RTAction, and undoing whether they take back what it did.
	action  string
	undoing bool
	to      rt.Placement
	// held pods belong to actions in progress, and the loop moves none of them for another server. nil: none.
	held func(pod types.UID) bool
}

// heldOn are the servers of a node that are in the hands of actions.
func (m moves) heldOn(n *state.NodeView) map[string]bool {
	out := map[string]bool{}
	for i := range n.Servers {
		if s := &n.Servers[i]; m.held != nil && m.held(s.PodUID) {
			out[s.ID] = true
		}
	}
	return out
}

// movesOf are the moves that an action asks for now. There are none before the action has recorded where the containers
// were: no later controller could take them back.
func movesOf(o *v1alpha1.RTAction) moves {
	from, ok, err := fromOf(o.Status.Progress)
	out := moves{action: o.Name, undoing: rules.Phase(o.Status.Phase) == rules.RollingBack}
	switch {
	case err != nil || !ok:
	case out.undoing:
		out.to = from
	default:
		out.to = destinations(o)
	}
	return out
}

// destinations are the cores that an action names.
func destinations(o *v1alpha1.RTAction) rt.Placement {
	out := rt.Placement{}
	for _, m := range o.Spec.Moves {
		out[rtdra.ServerID(m.PodUID, m.Container)] = int(m.Core)
	}
	return out
}

// placesOf are the cores on which the containers of the moves are. One that has none is left out: there is nothing
// that it could go back to.
func placesOf(n *state.NodeView, to rt.Placement) rt.Placement {
	out := rt.Placement{}
	for id := range to {
		if s, ok := n.Server(id); ok && s.Physical != rt.NoCore {
			out[id] = s.Physical
		}
	}
	return out
}

// fromOf reads where the containers were; ok is false while that is not on record.
func fromOf(progress map[string]string) (from rt.Placement, ok bool, err error) {
	text, ok := progress[progressFrom]
	if !ok {
		return nil, false, nil
	}
	if err := json.Unmarshal([]byte(text), &from); err != nil {
		return nil, false, fmt.Errorf("reading entry %s of the action's progress: %w", progressFrom, err)
	}
	return from, true, nil
}

// record puts on record where the containers are.
func record(progress map[string]string, from rt.Placement) error {
	text, err := json.Marshal(from)
	if err != nil {
		return fmt.Errorf("recording where containers are: %w", err)
	}
	progress[progressFrom] = string(text)
	return nil
}

// apply puts the servers of the node on the cores of the moves where every core that takes one then passes its test.
// Otherwise none moves, and refused says which core does not take what. Servers that are gone stay gone.
func (m moves) apply(in rt.Node) (at rt.Placement, refused map[string]rt.Verdict) {
	if len(m.to) == 0 {
		return in.Current, nil
	}
	at = maps.Clone(in.Current)
	var moved []string
	for _, s := range in.Servers {
		if core, ok := m.to[s.ID]; ok {
			at[s.ID] = core
			moved = append(moved, s.ID)
		}
	}
	refused = map[string]rt.Verdict{}
	for _, id := range moved {
		if v := holdsAt(in, at, at[id]); !v.Admitted {
			refused[id] = v
		}
	}
	if len(refused) > 0 {
		return in.Current, refused
	}
	return at, nil
}

// holdsAt is the test of a core with the servers that a placement puts there.
func holdsAt(in rt.Node, at rt.Placement, id int) rt.Verdict {
	i := slices.IndexFunc(in.Cores, func(c rt.Core) bool { return c.ID == id })
	if i < 0 {
		return rt.Verdict{Test: rt.TestT1, Reason: rt.ReasonNoCore}
	}
	var servers []rt.Server
	for _, s := range in.Servers {
		if core, ok := at[s.ID]; ok && core == id {
			servers = append(servers, s)
		}
	}
	return rt.Holds(in.Cores[i], servers)
}

// changes adds the moves that were made to what else was changed beside them.
func (m moves) changes(before, after rt.Placement, others []rt.Change) []rt.Change {
	var out []rt.Change
	for _, c := range others {
		if from, had := before[c.ID]; had {
			if _, asked := m.to[c.ID]; asked {
				c.From = from
			}
		}
		if c.From != c.To {
			out = append(out, c)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.to)) {
		to, is := after[id]
		told := slices.ContainsFunc(out, func(c rt.Change) bool { return c.ID == id })
		from, was := before[id]
		switch {
		case !is || told || was && from == to:
		case was:
			out = append(out, rt.Change{ID: id, From: from, To: to, Reason: changeRearranged})
		case to == m.to[id]:
			out = append(out, rt.Change{ID: id, From: rt.NoCore, To: to, Reason: rt.ChangePlaced})
		}
	}
	return out
}
