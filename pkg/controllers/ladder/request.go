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
	// ReasonPressure is why the climb acts.
	ReasonPressure = "RTPressure"
	// ReasonRecovery is why containers go back.
	ReasonRecovery = "Recovery"
)

// timeouts are how long actions may run, but for preemptions and nodes.
var timeouts = map[rules.Kind]time.Duration{rules.Rearrange: 30 * time.Second, rules.Migrate: 5 * time.Minute}

const (
	// leaving is how long each pod that is evicted may take to end, and one more. usualGrace of pods is within that. More than mostGrace nobody
	// is waited for.
	leaving    = time.Minute
	usualGrace = corev1.DefaultTerminationGracePeriodSeconds * time.Second
	mostGrace  = 10 * time.Minute
)

// timeout of an option. They are evicted one after the other: one who takes long must not end the action before the last has gone, or the first
// went for nothing.
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

// request asks for an option.
func (p *planner) request(o option, passed []string) orchestration.Request {
	first := p.whom(o)
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

// whom an option is for: the first of those who suffer who has something of it.
func (p *planner) whom(o option) Sufferer {
	for _, s := range p.crowd.sufferers {
		if slices.ContainsFunc(o.Pods, func(uid types.UID) bool { return near(p.pods, uid, s) }) {
			return s
		}
	}
	return p.crowd.sufferers[0]
}

// beside tells whether another pod serves before one goes to a node, or without that to any. Then no budget is charged.
func (p *planner) beside(uid types.UID, node string) bool {
	return p.passage(uid, node).Beside && !p.behind(uid)
}

// behind tells whether a pod is late itself, or would be if it went on beyond its budget. No other is to serve before such a one goes: late wherever
// it runs, that would never prove itself, and nobody would learn that it is not the node that is late.
func (p *planner) behind(uid types.UID) bool {
	return slices.ContainsFunc(p.Sufferers, func(s Sufferer) bool {
		return s.PodUID == uid && (s.Source == SourceMisses || s.Source == SourceOverruns)
	})
}

// words say what an option does and brings.
func (o option) words() string {
	if o.Cured > 0 {
		return o.What + " gives it the room that it lacks"
	}
	return fmt.Sprintf("%s frees %d ppm around it", o.What, o.Relief)
}

func (p *planner) actionPod(uid types.UID) v1alpha1.ActionPod {
	view, _ := p.Snapshot.Pod(uid) // it was there when the option was made of it
	return v1alpha1.ActionPod{Namespace: view.Namespace, Name: view.Name, UID: uid}
}
