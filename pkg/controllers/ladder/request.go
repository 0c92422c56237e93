package ladder

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

const (
	// ReasonPressure is the reason of actions that answer pressure.
	ReasonPressure = "RTPressure"
	// ReasonRecovery is the reason of actions that move containers back.
	ReasonRecovery = "Recovery"
)

// timeouts are the maximum durations of actions, except preemptions and nodes.
var timeouts = map[rules.Kind]time.Duration{rules.Rearrange: 30 * time.Second, rules.Migrate: 5 * time.Minute}

const (
	// leaving is the time that the timeout has for each evicted pod, and once more. It covers the usual grace period usualGrace.
	// The timeout covers at most mostGrace of a pod's grace period.
	leaving    = time.Minute
	usualGrace = corev1.DefaultTerminationGracePeriodSeconds * time.Second
	mostGrace  = 10 * time.Minute
)

// timeout is the timeout of an option. The executor evicts pods one after the other. A pod that ends slowly must not end the
// action before the last has gone, or the first went for nothing.
func (p *planner) timeout(o option) time.Duration {
	switch o.Kind {
	case rules.OpenNode, rules.ReplaceNode:
		return p.Options.NodeTimeout
	case rules.Preempt:
	default:
		return timeouts[o.Kind]
	}
	out := leaving * time.Duration(1+len(o.Pods))
	for _, uid := range o.Pods {
		if view, ok := p.Snapshot.Pod(uid); ok {
			out += max(0, min(view.Grace, mostGrace)-usualGrace)
		}
	}
	return out
}

// request makes the request for an option.
func (p *planner) request(o option, passed []string) orchestration.Request {
	first := p.beneficiary(o)
	r := orchestration.Request{
		Kind: o.Kind, Reason: ReasonPressure, Cause: p.Cause(), Node: p.Node.Name, TargetNode: o.Target, Moves: o.Moves,
		Beneficiary: v1alpha1.ActionBeneficiary{
			Kind: "Pod", Namespace: first.Namespace, Name: first.Pod, UID: first.PodUID, Criticality: first.Criticality.String(),
		},
		StartBy: p.Now.Add(p.Options.Patience), Timeout: p.timeout(o),
	}
	if o.Kind == rules.Migrate {
		r.Beside, r.Timeout = p.beside(o.Pods[0], o.Target), cmp.Or(p.passage(o.Pods[0], o.Target).Timeout, r.Timeout)
	}
	for _, uid := range o.Pods {
		r.Pods = append(r.Pods, p.actionPod(uid))
	}
	for _, uid := range o.displaced {
		r.Displaces = append(r.Displaces, p.actionPod(uid))
	}
	if o.Kind == rules.ReplaceNode {
		r.NodePool = p.Pool
	}
	r.Message = fmt.Sprintf("%s: %s; %s", first.Where(), first.Detail, o.words())
	if len(o.again) > 0 {
		r.Cause = p.LastResort()
		r.Message += fmt.Sprintf("; %s, moved for this pressure before, is moved once more, as the last resort", p.names(o.again))
	}
	if p.ahead != "" {
		r.Message += "; nothing helps " + p.ahead + " that was not tried in vain"
	}
	if len(passed) > 0 {
		r.Message += "; cheaper ones do not help: " + strings.Join(passed, "; ")
	}
	return r
}

// beneficiary is the container that an option is for: the first affected container that an option's pod is near.
func (p *planner) beneficiary(o option) AffectedContainer {
	for _, s := range p.contention.affected {
		if slices.ContainsFunc(o.Pods, func(uid types.UID) bool { return near(p.pods, uid, s) }) {
			return s
		}
	}
	return p.contention.affected[0]
}

// beside tells whether the replacement of a pod serves before the pod goes to a node or, without a node, to any. Then the move
// is not charged to a PodDisruptionBudget.
func (p *planner) beside(uid types.UID, node string) bool {
	return p.passage(uid, node).Beside && !p.behind(uid)
}

// behind tells whether a pod is late itself, or would be if it went on beyond its budget. Its replacement must not have to serve
// first. If that is late on every node it would never become ready, and the controller could not learn that the node is not at
// fault.
func (p *planner) behind(uid types.UID) bool {
	return slices.ContainsFunc(p.Affected, func(s AffectedContainer) bool {
		return s.PodUID == uid && (s.Source == SourceMisses || s.Source == SourceOverruns)
	})
}

// words describes an option and its effect.
func (o option) words() string {
	if o.Cured > 0 {
		return o.What + " gives it the room that it lacks"
	}
	return fmt.Sprintf("%s frees %d ppm around it", o.What, o.Relief)
}

func (p *planner) actionPod(uid types.UID) v1alpha1.ActionPod {
	view, _ := p.Snapshot.Pod(uid) // it existed when the planner made the option
	return v1alpha1.ActionPod{Namespace: view.Namespace, Name: view.Name, UID: uid}
}
