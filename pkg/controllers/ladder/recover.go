package ladder

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// way is the recovery of the containers that were moved within a node.
type way struct {
	Node *state.NodeView
	Episode
	Answers []*v1alpha1.RTAction
	// Returns are the actions of the recovery so far.
	Returns []*v1alpha1.RTAction
	Ticket  func(orchestration.Request) (orchestration.Ticket, bool)
	Options Options
	Now     time.Time
}

// next is the next container that goes back to the core of its claim. The container that was moved last comes first. Its core
// must pass the admission test. The core must also be less full than the one that the container leaves, unless the beneficiary
// of the move is no longer on the node. A failed return is repeated after its backoff, a few times. ok is false when no
// container can go now. Then again is when one may, or zero when none is left that can.
func (w way) next() (request orchestration.Request, again time.Time, ok bool) {
	for _, made := range movesOf(w.beforeRelapse()) {
		v, ok := w.goesBack(made)
		if !ok {
			continue
		}
		r := w.request(v)
		ticket, known := w.Ticket(r)
		switch {
		case !known || ticket.Attempt < attempts && submittable(ticket, w.Now):
			return r, time.Time{}, true
		case ticket.Attempt < attempts && !ticket.Again.IsZero() && (again.IsZero() || ticket.Again.Before(again)):
			again = ticket.Again
		}
	}
	return orchestration.Request{}, again, false
}

// goesBack returns the container of a move, if it may go back to the core of its claim now.
func (w way) goesBack(made made) (*state.ServerView, bool) {
	v, ok := w.Node.Server(rtdra.ServerID(made.PodUID, made.Container))
	if !ok || !v.Running || v.Witness == rt.NoCore || v.Physical == rt.NoCore || v.Physical == v.Witness {
		return nil, false
	}
	core, ok := w.Node.Core(v.Witness)
	if !ok || !rt.Admit(core.Core, w.Node.Runs(core).Servers, v.InForce()).Admitted {
		return nil, false
	}
	return v, w.eases(v, core) || !w.concerns(made.beneficiary)
}

// beforeRelapse lists the answers that are older than the first return. What answered a relapse stays, or the pressure would
// come again.
func (w way) beforeRelapse() []*v1alpha1.RTAction {
	first, any := time.Time{}, false
	for _, o := range w.Returns {
		if a, _ := record.Read(o); !any || a.Since.Before(first) {
			first, any = a.Since, true
		}
	}
	return slices.DeleteFunc(slices.Clone(w.Answers), func(o *v1alpha1.RTAction) bool {
		a, _ := record.Read(o) // for its times
		return any && a.Since.After(first)
	})
}

// eases tells whether the core of the claim is then less full than the core that the container leaves.
func (w way) eases(v *state.ServerView, home *state.CoreView) bool {
	away, ok := w.Node.Core(v.Physical)
	in := v.InForce()
	return !ok || home.Placed+in.Charge(home.Granularity)-home.Capacity < away.Placed-away.Capacity
}

// concerns tells whether a pod still has real-time containers on the node.
func (w way) concerns(beneficiary types.UID) bool {
	return slices.ContainsFunc(w.Node.Servers, func(s state.ServerView) bool { return s.PodUID == beneficiary && s.Running })
}

// made is a move and its beneficiary.
type made struct {
	v1alpha1.ActionMove
	beneficiary types.UID
}

// movesOf are the completed moves, the last first.
func movesOf(actions []*v1alpha1.RTAction) []made {
	done := slices.DeleteFunc(slices.Clone(actions), func(o *v1alpha1.RTAction) bool {
		return rules.Kind(o.Spec.Kind) != rules.Rearrange || phaseOf(o) != rules.Succeeded
	})
	slices.SortStableFunc(done, func(a, b *v1alpha1.RTAction) int {
		first, _ := record.Read(a) // for their times
		second, _ := record.Read(b)
		return cmp.Or(second.Entered.Compare(first.Entered), cmp.Compare(b.Name, a.Name))
	})
	var out []made
	for _, o := range done {
		for _, move := range slices.Backward(o.Spec.Moves) {
			out = append(out, made{move, o.Spec.Beneficiary.UID})
		}
	}
	return out
}

func (w way) request(v *state.ServerView) orchestration.Request {
	return orchestration.Request{
		Kind: rules.Rearrange, Reason: ReasonRecovery, Cause: w.RecoveryCause(), Node: w.Node.Name,
		Message:     fmt.Sprintf("container %s of pod %s/%s goes back to core %d, where its claim is", v.Container, v.Namespace, v.Pod, v.Witness),
		Beneficiary: v1alpha1.ActionBeneficiary{Kind: "Pod", Namespace: v.Namespace, Name: v.Pod, UID: v.PodUID, Criticality: rt.Low.String()},
		Moves:       []v1alpha1.ActionMove{{PodUID: v.PodUID, Container: v.Container, Core: int32(v.Witness)}},
		StartBy:     w.Now.Add(w.Options.Patience), Timeout: timeouts[rules.Rearrange],
	}
}
