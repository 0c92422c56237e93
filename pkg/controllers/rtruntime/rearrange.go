package rtruntime

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// RearrangeDependencies are the collaborators of Rearrange. All but HoldsPod are required.
type RearrangeDependencies struct {
	// API is asked what is stored, past all caches.
	API   client.Reader
	Store *state.Store
	Clock clock.PassiveClock
	// Running are the actions of kind Rearrange that run or are being undone.
	Running func() []*v1alpha1.RTAction
	// HoldsPod is the action that has a pod; empty: none has. nil: none ever.
	HoldsPod func(uid types.UID) string
	// Granularity is what every budget is charged beyond itself, in microseconds.
	Granularity int64
}

// Rearrange is the executor of actions that move containers to other cores of their node. It writes nothing: the node
// loop, which alone writes what runs where, asks it for the moves of a node, and makes them where the cores take them.
type Rearrange struct {
	RearrangeDependencies
	// waking is the queue of the node loop, once that runs.
	waking atomic.Pointer[workqueue.TypedRateLimitingInterface[reconcile.Request]]
	// writing are held while what runs on a node is decided and written. Nodes come and go, so they share a few.
	writing [64]sync.Mutex
}

// NewRearrange makes the executor.
func NewRearrange(d RearrangeDependencies) *Rearrange {
	return &Rearrange{RearrangeDependencies: d}
}

// source feeds the node loop with nodes whose moves have changed.
func (e *Rearrange) source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		e.waking.Store(&queue)
		return nil
	})
}

// ring has the node loop look at a node.
func (e *Rearrange) ring(node string) {
	if queue := e.waking.Load(); queue != nil {
		(*queue).Add(named(node))
	}
}

// on are the moves that are asked of a node now, and who must not be moved beside. There is one action at most: it has the whole node.
func (e *Rearrange) on(node string) moves {
	out := moves{}
	for _, o := range e.Running() {
		if o.Spec.Node == node {
			out = movesOf(o)
			break
		}
	}
	if e.HoldsPod != nil {
		out.held = func(pod types.UID) bool { return e.HoldsPod(pod) != "" }
	}
	return out
}

// writes is held from before the node loop asks for the moves of a node until it has written what follows from them. So
// a holder of the lock knows, while an action is being undone, that the loop no longer writes what the action wanted.
func (e *Rearrange) writes(node string) *sync.Mutex {
	h := fnv.New32a()
	_, _ = h.Write([]byte(node)) // never fails
	return &e.writing[h.Sum32()%uint32(len(e.writing))]
}

// Step implements orchestration.Executor.
func (e *Rearrange) Step(ctx context.Context, task orchestration.Task) (rules.Result, error) {
	if err := e.Store.Synced(); err != nil { // what it does not show yet is not gone
		return rules.Result{}, err
	}
	from, recorded, err := fromOf(task.Progress)
	if err != nil {
		return rules.Result{}, err
	}
	node := task.Object.Spec.Node
	n, ok := e.Store.Snapshot().NodeView(node)
	switch {
	case task.Undoing() && !recorded:
		return rules.Result{Outcome: rules.RolledBack, Message: "nothing had been moved"}, nil
	case task.Undoing():
		e.ring(node)
		return e.undo(ctx, task, from)
	case !ok || n.RTNode == nil || n.UID == "":
		return rules.Result{Undo: true, Message: fmt.Sprintf("node %s has no real-time cores any longer", node)}, nil
	case n.Agent == state.AgentSilent:
		return rules.Result{Undo: true, Message: fmt.Sprintf("the agent of node %s is silent, and would move nothing", node)}, nil
	}
	to := destinations(task.Object)
	if result, done := e.judge(n, to); done {
		return result, nil
	}
	if !recorded {
		return rules.Result{Message: "noted where the containers are"}, record(task.Progress, placesOf(n, to))
	}
	e.ring(node)
	return rules.Result{Message: "waits for " + strings.Join(outstanding(n, to), ", ")}, nil
}

// judge tells whether an action is done, or cannot be.
func (e *Rearrange) judge(n *state.NodeView, to rt.Placement) (result rules.Result, done bool) {
	here := maps.Clone(to)
	maps.DeleteFunc(here, func(id string, _ int) bool { return !serves(n, id) })
	if len(to) == 0 {
		return rules.Result{Undo: true, Message: "moves: must name the containers and their cores"}, true
	}
	if len(here) == 0 {
		return rules.Result{Undo: true, Message: fmt.Sprintf("none of its containers runs on node %s any longer", n.Name)}, true
	}
	d := decide(n, pressure{}, e.Clock.Now(), e.Granularity, moves{to: here})
	if len(d.Unmoved) > 0 {
		return rules.Result{Undo: true, Message: refusals(n, here, d.Unmoved)}, true
	}
	if len(outstanding(n, here)) == 0 {
		return rules.Result{Outcome: rules.Succeeded, Message: "moved " + list(n, here)}, true
	}
	return rules.Result{}, false
}

// undo waits until what is stored has the containers where they were, and the agent has applied that. One that is silent
// finds it when it comes back.
func (e *Rearrange) undo(ctx context.Context, task orchestration.Task, from rt.Placement) (rules.Result, error) {
	node := task.Object.Spec.Node
	writing := e.writes(node)
	if !writing.TryLock() {
		return rules.Result{}, nil // it may still be writing what the action wanted
	}
	defer writing.Unlock()
	r := &v1alpha1.RTNode{}
	err := e.API.Get(ctx, client.ObjectKey{Name: node}, r)
	if client.IgnoreNotFound(err) != nil {
		return rules.Result{}, fmt.Errorf("reading RTNode %s: %w", node, err)
	}
	n, ok := e.Store.Snapshot().NodeView(node)
	if err != nil || !ok {
		return rules.Result{Outcome: rules.RolledBack, Message: fmt.Sprintf("node %s is gone", node)}, nil
	}
	if away := elsewhere(r, from); len(away) > 0 {
		d := decide(n, pressure{}, e.Clock.Now(), e.Granularity, moves{to: from})
		if len(d.Unmoved) > 0 {
			return rules.Result{Outcome: rules.Failed, Message: "they stay where they are: " + refusals(n, from, d.Unmoved)}, nil
		}
		return rules.Result{}, nil
	}
	if unapplied(r, from) && n.Agent != state.AgentSilent {
		return rules.Result{}, nil
	}
	return rules.Result{Outcome: rules.RolledBack, Message: "every container is on the core where it was"}, nil
}

// serves tells whether a server of the node runs there.
func serves(n *state.NodeView, id string) bool {
	s, ok := n.Server(id)
	return ok && s.Running && s.McKube != nil
}

// outstanding are, in words, the containers that do not run on their core yet.
func outstanding(n *state.NodeView, to rt.Placement) []string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(to)) {
		s, ok := n.Server(id)
		if !ok || !s.Running {
			continue
		}
		switch {
		case s.Physical != to[id]:
			out = append(out, fmt.Sprintf("container %s of pod %s/%s to be given core %d", s.Container, s.Namespace, s.Pod, to[id]))
		case s.Applied == nil || !slices.Equal(s.Applied.Cores, []int32{int32(to[id])}):
			out = append(out, fmt.Sprintf("the agent to move container %s of pod %s/%s to core %d", s.Container, s.Namespace, s.Pod, to[id]))
		}
	}
	return out
}

// elsewhere are the servers of an RTNode that are not on the core of a placement.
func elsewhere(r *v1alpha1.RTNode, at rt.Placement) []string {
	var out []string
	for _, s := range r.Spec.Servers {
		id := rtdra.ServerID(s.PodUID, s.Container)
		if core, ok := at[id]; ok && !slices.Equal(s.Cores, []int32{int32(core)}) {
			out = append(out, id)
		}
	}
	return out
}

// unapplied tells whether the agent has a server on another core than the placement's.
func unapplied(r *v1alpha1.RTNode, at rt.Placement) bool {
	return slices.ContainsFunc(r.Status.Servers, func(s v1alpha1.RTServerStatus) bool {
		core, ok := at[rtdra.ServerID(s.PodUID, s.Container)]
		return ok && len(s.Cores) > 0 && !slices.Equal(s.Cores, []int32{int32(core)})
	})
}

// refusals says why cores do not take what is to go there.
func refusals(n *state.NodeView, to rt.Placement, refused map[string]rt.Verdict) string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(refused)) {
		out = append(out, fmt.Sprintf("core %d does not take %s: %s", to[id], nameOf(n, id), refused[id]))
	}
	return strings.Join(out, "; ")
}

// list names the containers of moves and their cores.
func list(n *state.NodeView, to rt.Placement) string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(to)) {
		out = append(out, fmt.Sprintf("%s to core %d", nameOf(n, id), to[id]))
	}
	return strings.Join(out, ", ")
}

func nameOf(n *state.NodeView, id string) string {
	s, ok := n.Server(id)
	if !ok {
		return "container " + id
	}
	return fmt.Sprintf("container %s of pod %s/%s", s.Container, s.Namespace, s.Pod)
}
