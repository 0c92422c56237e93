package ladder_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/test/mortal"
)

// process is a controller with a cache, the queue and the loop of the ladder, on its own connection to the API server. It
// dies before one of its writes, or is not told that one took place.
type process struct {
	*stage
	store  *state.Store
	queue  *orchestration.Queue
	ladder reconcile.Reconciler
	seen   map[types.UID]client.Object

	points, at int
	losesReply bool
	dead       bool
}

func (s *stage) spawn() *process {
	s.Helper()
	s.processes++
	own := clocktesting.NewFakeClock(s.clock.Now())
	p := &process{stage: s, store: state.New(state.Options{Clock: own}), seen: map[types.UID]client.Object{}}
	p.store.Complete()
	guarded := mortal.Guarded(p.noting(), p.alive, p.point)
	var err error
	p.queue, err = orchestration.New(orchestration.Dependencies{
		Clock: s.clock, Client: guarded, Reader: guarded, Recorder: silent{}, Nodes: undisrupted{}, Lease: client.ObjectKey{Namespace: s.namespace, Name: "queue"},
		Identity: fmt.Sprintf("process-%d", s.processes),
	})
	s.must(err)
	for _, kind := range rules.Kinds {
		switch {
		case s.unable[kind]:
		case kind == rules.Preempt:
			p.queue.Handle(kind, watched{p, ladder.NewPreempt(guarded, guarded, p.store)})
		default:
			p.queue.Handle(kind, crew{p})
		}
	}
	p.ladder = ladder.New(ladder.Dependencies{
		Clock: s.clock, Client: guarded, Recorder: s.told, Store: p.store, Actions: p.queue, Options: s.options,
		Passage: s.passage,
	}).(reconcile.Reconciler)
	return p
}

// passage is the passage of all pods: the replacement serves first.
func (s *stage) passage(_ context.Context, pod *state.PodView, _ string) (ladder.Passage, error) {
	if slices.Contains(s.lost, pod.Name) {
		return ladder.Passage{}, errors.New("its policy cannot be read")
	}
	return ladder.Passage{Beside: true}, nil
}

// noting records at which points records on McKubes were written, and asks the policy of the cluster. The scheme does not know
// the type of NodePools.
func (p *process) noting() client.WithWatch {
	return interceptor.NewClient(p.api, interceptor.Funcs{
		Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if pool, ok := o.(*karpenterv1.NodePool); ok {
				pool.Name, pool.Spec.Replicas = key.Name, p.fixed
				return nil
			}
			return api.Get(ctx, key, o, options...)
		},
		Create: func(ctx context.Context, api client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if p.policy != nil {
				if err := p.policy(o); err != nil {
					return err
				}
			}
			return api.Create(ctx, o, options...)
		},
		Patch: func(ctx context.Context, api client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			if _, ok := o.(*mcv1.McKube); ok {
				p.notes = append(p.notes, p.points)
			}
			if p.policy != nil {
				if err := p.policy(o); err != nil {
					return err
				}
			}
			return api.Patch(ctx, o, patch, options...)
		},
		SubResourcePatch: func(ctx context.Context, api client.Client, sub string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			if p.policy != nil {
				if err := p.policy(o); err != nil {
					return err
				}
			}
			return api.SubResource(sub).Patch(ctx, o, patch, options...)
		},
	})
}

// alive reads, unless the process is dead.
func (p *process) alive(do func() error) error {
	if p.dead {
		return mortal.ErrDied
	}
	return do()
}

// point is a write of the process.
func (p *process) point(do func() error) error {
	if p.dead {
		return mortal.ErrDied
	}
	p.points++
	switch {
	case p.points != p.at:
		return do()
	case p.losesReply:
		_ = do() // the process does not learn of it
		return apierrors.NewTimeoutError("who knows", 1)
	}
	p.dead = true
	return mortal.ErrDied
}

// turn lets every loop look once.
func (p *process) turn() {
	p.Helper()
	p.look()
	requests := []reconcile.Request{{}}
	loops := p.queue.Loops()
	p.reconcile(loops[0], requests...)
	list := &v1alpha1.RTActionList{}
	p.must(p.api.List(p.Context(), list))
	requests = nil
	for _, o := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Name: o.Name}})
	}
	p.reconcile(loops[1], requests...)
	requests = nil
	for _, name := range p.nodes {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
	}
	p.reconcile(p.ladder, requests...)
}

func (p *process) reconcile(loop reconcile.Reconciler, requests ...reconcile.Request) {
	p.Helper()
	for _, r := range requests {
		if p.dead {
			return
		}
		if _, err := loop.Reconcile(p.Context(), r); err != nil && !p.dead && p.at == 0 && p.policy == nil {
			p.Errorf("%T of %s: %v", loop, r.Name, err)
		}
	}
}

// look fills the cache with what the API server has now.
func (p *process) look() {
	p.Helper()
	now := map[types.UID]client.Object{}
	p.objects(func(o client.Object) {
		now[o.GetUID()] = o
		p.must(p.store.Update(o))
	})
	for uid, old := range p.seen {
		if now[uid] == nil {
			p.must(p.store.Delete(old))
		}
	}
	p.seen = now
}

// silent drops Events: those of the queue are not the subject of these tests.
type silent struct{}

func (silent) Publish(...events.Event) {}

// undisrupted has nodes without disruptions.
type undisrupted struct{}

func (undisrupted) Disrupted(string) string { return "" }

func (undisrupted) Allowed(context.Context) (map[string]orchestration.PoolAllowance, error) {
	return map[string]orchestration.PoolAllowance{"edge": {Nodes: 1}}, nil
}

// watched counts what an executor has done for good.
type watched struct {
	*process
	orchestration.Executor
}

func (w watched) Step(ctx context.Context, task orchestration.Task) (rules.Result, error) {
	if _, ok := w.conduct[task.Action.Kind]; ok {
		return crew{w.process}.Step(ctx, task)
	}
	return w.Executor.Step(ctx, task)
}

// crew does the work of other packages, as they promise: each step may be repeated.
type crew struct{ *process }

func (c crew) Step(ctx context.Context, task orchestration.Task) (rules.Result, error) {
	if how, ok := c.conduct[task.Action.Kind]; ok {
		if task.Undoing() {
			return rules.Result{Outcome: rules.RolledBack}, nil
		}
		return how, nil
	}
	if task.Undoing() {
		return rules.Result{Outcome: rules.RolledBack}, nil
	}
	switch task.Action.Kind {
	case rules.Rearrange:
		return rules.Result{Outcome: rules.Succeeded}, c.rearrange(task.Object)
	case rules.Migrate:
		if o := task.Object; o.Spec.Beside && c.misses[o.Spec.Pods[0].Name] > 0 {
			return rules.Result{Undo: true, Message: "its copy is late, too, and never proves itself"}, nil
		}
		if !c.fits(task.Object) {
			return rules.Result{Undo: true, Message: "no core of the target takes it any more"}, nil
		}
		return rules.Result{Outcome: rules.Succeeded}, c.migrate(ctx, task.Object)
	}
	return rules.Result{Undo: true, Message: "the provider refuses"}, nil
}

func (c crew) rearrange(o *v1alpha1.RTAction) error {
	return c.point(func() error {
		c.spec(o.Spec.Node, func(r *v1alpha1.RTNode) {
			for _, m := range o.Spec.Moves {
				at := slices.IndexFunc(r.Spec.Servers, func(s v1alpha1.RTServer) bool { return s.PodUID == m.PodUID })
				if at >= 0 && r.Spec.Servers[at].Cores[0] != m.Core {
					c.done = append(c.done, fmt.Sprintf("%s to core %d", r.Spec.Servers[at].Pod, m.Core))
					r.Spec.Servers[at].Cores[0] = m.Core
				}
			}
		})
		return nil
	})
}

// fits tells whether no other pod has come to the target, or the moved pod is there already.
func (c crew) fits(o *v1alpha1.RTAction) bool {
	servers := c.rtNode(o.Spec.TargetNode).Spec.Servers
	return len(servers) == 0 || servers[0].Pod == o.Spec.Pods[0].Name
}

// migrate removes the pod, and makes another of its name on the target.
func (c crew) migrate(ctx context.Context, o *v1alpha1.RTAction) error {
	return c.point(func() error {
		named := o.Spec.Pods[0]
		pod := &corev1.Pod{}
		if err := c.api.Get(ctx, types.NamespacedName{Namespace: named.Namespace, Name: named.Name}, pod); err != nil || pod.UID != named.UID {
			return client.IgnoreNotFound(err)
		}
		servers := c.rtNode(pod.Spec.NodeName).Spec.Servers
		was := servers[slices.IndexFunc(servers, func(e v1alpha1.RTServer) bool { return e.PodUID == pod.UID })]
		c.must(c.api.Delete(ctx, pod, client.GracePeriodSeconds(0)))
		c.done = append(c.done, fmt.Sprintf("%s to node %s", pod.Name, o.Spec.TargetNode[len(c.namespace)+1:]))
		c.live()
		c.run(pod.Name, o.Spec.TargetNode[len(c.namespace)+1:], mcv1.Criticality(was.Criticality), was.BudgetHighUs/1000, 0)
		return nil
	})
}
