package ladder

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// opens tells whether an action has a node opened, which takes minutes and nothing of the node under pressure.
func opens(o *v1alpha1.RTAction) bool { return rules.Kind(o.Spec.Kind) == rules.OpenNode }

// worth is the criticality of whom an action is for.
func worth(o *v1alpha1.RTAction) rt.Criticality {
	a, _ := record.Read(o) // for its criticality
	return a.Criticality
}

// beside are the answers under way beside which another may be chosen: a node that is opened, and what only waits for somebody less critical than
// the most critical who suffers. blocker is one beside which none may, if there is any.
func (s scene) beside() (list []*v1alpha1.RTAction, blocker string) {
	for _, o := range s.Returns {
		if waitingOrRunning(o) {
			return nil, o.Name
		}
	}
	for _, o := range s.Answers {
		switch {
		case !waitingOrRunning(o):
		case opens(o) || waits(o) && worth(o) < s.Sufferers[0].Criticality:
			list = append(list, o)
		default:
			return nil, o.Name
		}
	}
	if len(list) > 0 && !slices.ContainsFunc(s.Sufferers, func(x Sufferer) bool { return letsAll(list, x, nil) }) {
		return nil, list[0].Name
	}
	return list, ""
}

// letsAll tells whether somebody who suffers may have an answer beside all that is under way: whoever is more critical than those whom that is for
// and, where that is a node that is opened, whoever is as critical and has nothing of it. So nobody has two answers at once.
func letsAll(under []*v1alpha1.RTAction, x Sufferer, pods map[types.UID][]*state.ServerView) bool {
	return !slices.ContainsFunc(under, func(o *v1alpha1.RTAction) bool {
		if of := worth(o); x.Criticality != of {
			return x.Criticality < of
		}
		return !opens(o) || serves(o, x, pods)
	})
}

// serves tells whether a node that is opened is for somebody who suffers: for its pod, or for others that are in its way.
func serves(o *v1alpha1.RTAction, x Sufferer, pods map[types.UID][]*state.ServerView) bool {
	return o.Spec.Beneficiary.UID == x.PodUID ||
		slices.ContainsFunc(o.Spec.Pods, func(p v1alpha1.ActionPod) bool { return near(pods, p.UID, x) })
}

// near tells whether a pod is that of somebody who suffers, or shares a core with it; whoever has no core may have any.
func near(pods map[types.UID][]*state.ServerView, uid types.UID, x Sufferer) bool {
	return uid == x.PodUID || slices.ContainsFunc(pods[uid], func(s *state.ServerView) bool {
		return x.Physical == rt.NoCore || s.Physical == x.Physical
	})
}

// held tells whether another action has a pod, and does not give way to those whom this one is for.
func (p *planner) held(uid types.UID) bool {
	return p.Held(uid) && !slices.ContainsFunc(p.Beside, func(o *v1alpha1.RTAction) bool {
		return opens(o) && phaseOf(o).Holds() && names(o, uid) && worth(o) < p.crowd.sufferers[0].Criticality
	})
}

// opening tells whether a node is opened for a pod already.
func (p *planner) opening(uid types.UID) bool {
	return slices.ContainsFunc(p.Beside, func(o *v1alpha1.RTAction) bool { return opens(o) && names(o, uid) })
}

func names(o *v1alpha1.RTAction, uid types.UID) bool {
	return slices.ContainsFunc(o.Spec.Pods, func(p v1alpha1.ActionPod) bool { return p.UID == uid })
}

// touches tells whether an option has a pod of an action, now or next.
func (o option) touches(of *v1alpha1.RTAction) bool {
	moved := make([]types.UID, 0, len(o.Moves))
	for _, m := range o.Moves {
		moved = append(moved, m.PodUID)
	}
	return slices.ContainsFunc(slices.Concat(o.Pods, o.next, o.displaced, moved), func(uid types.UID) bool { return names(of, uid) })
}

// unhelped tells that nothing is found beside what is under way, where that is for somebody less critical than the most critical who suffers.
func (v visit) unhelped(beside []*v1alpha1.RTAction, chosen answer) {
	top := v.scene.Sufferers[0].Criticality
	if len(chosen.Passed) > 0 && !slices.ContainsFunc(beside, func(o *v1alpha1.RTAction) bool { return worth(o) >= top }) {
		v.unanswered(strings.Join(chosen.Passed, "; "))
	}
}

// makeWay withdraws what is under way for somebody less critical than an answer is for: what only waits, and nodes that are opened for pods which
// the answer has. It tells whether the answer may be asked for: nobody has a pod of it any longer.
func (v visit) makeWay(ctx context.Context, beside []*v1alpha1.RTAction, chosen answer) (clear bool, err error) {
	clear = true
	for _, o := range beside {
		a, _ := record.Read(o) // for its phase
		if a.Criticality >= chosen.of || a.Phase.Holds() && !chosen.touches(o) {
			continue
		}
		clear = clear && !a.Phase.Holds()
		if a.Unwanted || a.Phase == rules.RollingBack {
			continue
		}
		if err := v.Actions.Withdraw(ctx, o.Name, "Somebody more critical needs the place"); err != nil {
			return false, fmt.Errorf("withdrawing action %s: %w", o.Name, err)
		}
	}
	return clear, nil
}
