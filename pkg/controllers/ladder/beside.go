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

// opens tells whether an action opens a node. That takes minutes, and uses nothing of the node under pressure.
func opens(o *v1alpha1.RTAction) bool { return rules.Kind(o.Spec.Kind) == rules.OpenNode }

// worth is the criticality of the beneficiary of an action.
func worth(o *v1alpha1.RTAction) rt.Criticality {
	a, _ := record.Read(o) // for its criticality
	return a.Criticality
}

// beside lists the actions in progress beside which the planner may choose another: the opening of a node, and a waiting action
// for a container less critical than the most critical affected container. blocker is an action that excludes any other, if
// there is one.
func (s scene) beside() (list []*v1alpha1.RTAction, blocker string) {
	for _, o := range s.Returns {
		if waitingOrRunning(o) {
			return nil, o.Name
		}
	}
	for _, o := range s.Answers {
		switch {
		case !waitingOrRunning(o):
		case opens(o) || waits(o) && worth(o) < s.Affected[0].Criticality:
			list = append(list, o)
		default:
			return nil, o.Name
		}
	}
	if len(list) > 0 && !slices.ContainsFunc(s.Affected, func(x AffectedContainer) bool { return letsAll(list, x, nil) }) {
		return nil, list[0].Name
	}
	return list, ""
}

// letsAll tells whether an affected container may have an answer beside all actions in progress. It may if it is more critical
// than their beneficiaries. It also may if it is as critical, the action opens a node, and the action does not serve it. So no
// container has two answers at once.
func letsAll(under []*v1alpha1.RTAction, x AffectedContainer, pods map[types.UID][]*state.ServerView) bool {
	return !slices.ContainsFunc(under, func(o *v1alpha1.RTAction) bool {
		if of := worth(o); x.Criticality != of {
			return x.Criticality < of
		}
		return !opens(o) || serves(o, x, pods)
	})
}

// serves tells whether the opening of a node serves an affected container: for its own pod, or for other pods that are in its
// way.
func serves(o *v1alpha1.RTAction, x AffectedContainer, pods map[types.UID][]*state.ServerView) bool {
	return o.Spec.Beneficiary.UID == x.PodUID ||
		slices.ContainsFunc(o.Spec.Pods, func(p v1alpha1.ActionPod) bool { return near(pods, p.UID, x) })
}

// near tells whether a pod is the pod of an affected container, or shares a core with it. An affected container without a core
// is near every pod.
func near(pods map[types.UID][]*state.ServerView, uid types.UID, x AffectedContainer) bool {
	return uid == x.PodUID || slices.ContainsFunc(pods[uid], func(s *state.ServerView) bool {
		return x.Physical == rt.NoCore || s.Physical == x.Physical
	})
}

// held tells whether another action has a pod, and does not give way to the containers that this action is for.
func (p *planner) held(uid types.UID) bool {
	return p.Held(uid) && !slices.ContainsFunc(p.Beside, func(o *v1alpha1.RTAction) bool {
		return opens(o) && phaseOf(o).Holds() && names(o, uid) && worth(o) < p.contention.affected[0].Criticality
	})
}

// opening tells whether an action already opens a node for a pod.
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

// unhelped reports that the planner found nothing beside the actions in progress, if all of these are for containers less
// critical than the most critical affected container.
func (v visit) unhelped(beside []*v1alpha1.RTAction, chosen answer) {
	top := v.scene.Affected[0].Criticality
	if len(chosen.Passed) > 0 && !slices.ContainsFunc(beside, func(o *v1alpha1.RTAction) bool { return worth(o) >= top }) {
		v.unanswered(strings.Join(chosen.Passed, "; "))
	}
}

// makeWay withdraws less critical actions in progress: those that only wait, and openings of nodes for pods that the answer has.
// It tells whether the caller may submit the answer: no less critical action has a pod of it any longer.
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
