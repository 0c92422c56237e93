package migration_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/migration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/test/mortal"
)

// calm nodes are not disrupted by others.
type calm struct{}

func (calm) Disrupted(string) string                                                 { return "" }
func (calm) Allowed(context.Context) (map[string]orchestration.PoolAllowance, error) { return nil, nil }

// process is a controller with a queue, the executor, and a cache of its own, which it fills before each turn.
type process struct {
	*town
	// client is the API server, and reader what is asked of it beside the cache, up to its death.
	client   client.Client
	reader   client.Reader
	dead     atomic.Bool
	store    *state.Store
	queue    *orchestration.Queue
	seen     map[types.UID]client.Object
	evicting chan struct{}
	// migrations is the loop over PodMigrations.
	migrations *migration.Reconciler
}

// start starts a controller that knows what there is, and nothing of its predecessors.
func (w *town) start() *process {
	w.Helper()
	own := clocktesting.NewFakeClock(w.clock.Now())
	p := &process{town: w, store: state.New(state.Options{Clock: own}), seen: map[types.UID]client.Object{}, evicting: make(chan struct{}, 1)}
	p.client, p.reader = mortal.Guarded(w.client, p.alive, p.write), mortal.Guarded(w.api, p.alive, mortal.Always)
	p.look()
	p.store.Complete()
	own.Step(time.Minute) // claims may name pods that are gone
	var err error
	p.queue, err = orchestration.New(orchestration.Dependencies{
		Clock: w.clock, Client: p.client, Reader: p.reader, Recorder: w, Nodes: calm{},
		Lease: types.NamespacedName{Namespace: w.namespace, Name: "queue"}, Identity: string(uuid.NewUUID()),
	})
	w.must(err)
	p.queue.Handle(rules.Migrate, migration.New(p.dependencies()))
	p.migrations = p.reconciler()
	return p
}

// alive makes a call, unless the process has died.
func (p *process) alive(do func() error) error {
	if p.dead.Load() {
		return errDied
	}
	return do()
}

// write is one that the process makes, which may die before or after it. From then on the process makes none, whichever loop asks for
// it.
func (p *process) write(do func() error) error {
	if p.dead.Load() {
		return errDied
	}
	p.lock.Lock()
	p.writes++
	dies := p.writes == p.dieAt
	p.lock.Unlock()
	err := errDied
	if !dies || !p.dieBefore {
		err = do()
	}
	if dies || errors.Is(err, errDied) {
		p.dead.Store(true)
		return errDied
	}
	return err
}

// next is the process itself, or a new one if it has died, which the error may say. Other errors fail the test.
func (p *process) next(err error) *process {
	p.Helper()
	if p.dead.Load() {
		return p.start()
	}
	p.must(err)
	return p
}

func (p *process) dependencies() migration.Dependencies {
	return migration.Dependencies{
		Clock: p.clock, Client: p.client, API: p.reader, Store: p.store, Recorder: p.town, Placement: p.town, Judge: p.judge,
		Namespaces: p.namespaces, Checkpointing: true, Gating: !p.webhookless, Evicting: p.evicting, Running: func() []*v1alpha1.RTAction { return p.queue.Running(rules.Migrate) },
	}
}

// look fills the cache with what the town has now.
func (p *process) look() {
	p.Helper()
	now := map[types.UID]client.Object{}
	for _, list := range []client.ObjectList{
		&corev1.NodeList{}, &resourcev1.ResourceSliceList{}, &corev1.PodList{}, &mcv1.McKubeList{}, &resourcev1.ResourceClaimList{}, &v1alpha1.RTActionList{}, &v1alpha1.RTNodeList{},
	} {
		p.must(p.api.List(p.Context(), list))
		p.must(meta.EachListItem(list, func(o runtime.Object) error {
			object := o.(client.Object)
			now[object.GetUID()] = object
			return p.store.Update(o)
		}))
	}
	for uid, old := range p.seen {
		if now[uid] == nil {
			p.must(p.store.Delete(old))
		}
	}
	p.seen = now
}

// turn lets everybody go on for a second.
func (p *process) turn() error {
	p.Helper()
	p.look()
	loops := p.queue.Loops()
	if _, err := loops[0].Reconcile(p.Context(), reconcile.Request{}); err != nil {
		return err
	}
	for _, o := range p.actions(p.Context()) {
		if _, err := loops[1].Reconcile(p.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: o.Name}}); err != nil {
			return err
		}
		p.kept(o.Name)
	}
	p.live()
	p.clock.Step(time.Second)
	return nil
}

// kept expects room for a pod that is evicted, as long as its replacement has none of its own.
func (p *process) kept(action string) {
	p.Helper()
	o := &v1alpha1.RTAction{}
	if err := p.api.Get(p.Context(), client.ObjectKey{Name: action}, o); err != nil || rules.Phase(o.Status.Phase).Over() {
		return
	}
	moved := o.Spec.Pods[0]
	placed := slices.ContainsFunc(p.pods(), func(pod corev1.Pod) bool {
		return pod.Annotations[mcv1.AnnotationReplaces] == string(moved.UID) && pod.Spec.NodeName != ""
	})
	if !slices.Contains(p.evicted, moved.Name) || placed {
		return
	}
	room, err := state.ParseMigration(o.Status.Progress[state.ProgressReserved])
	p.must(err)
	n, ok := p.store.Snapshot().NodeView(o.Spec.TargetNode)
	if ok && len(room.Cores) > 0 && len(n.Reservations) == 0 {
		p.Errorf("action %s has evicted, and no core of %s is reserved", action, o.Spec.TargetNode)
	}
}

// submit asks until it is stored, although processes die over it.
func (w *town) submit(p *process, r orchestration.Request) (*process, string) {
	w.Helper()
	for range 5 {
		ticket, err := p.queue.Submit(w.Context(), r)
		if err == nil {
			return p, ticket.Name
		}
		if errors.Is(err, orchestration.ErrNotReady) {
			err = nil
		}
		p = p.next(err)
		p = p.next(p.turn())
	}
	w.Fatal("it cannot be submitted")
	return nil, ""
}

// play goes on until every action is over: the controller lives until its death, and then another one goes on. What
// else happens, happens before the turn of a number. Then nothing is reserved, here or by any process to come.
func (w *town) play(meanwhile func(turn int, p *process), requests ...orchestration.Request) []v1alpha1.RTAction {
	w.Helper()
	p := w.start()
	for _, r := range requests {
		p, _ = w.submit(p, r)
	}
	for turn := range 120 {
		if meanwhile != nil {
			meanwhile(turn, p)
		}
		p = p.next(p.turn())
		if list := w.actions(w.Context()); over(list) {
			p = p.next(p.turn())
			p.free()
			w.start().free()
			return w.actions(w.Context())
		}
	}
	w.Fatalf("it does not end: %+v; %s", w.actions(w.Context())[0].Status, w.running())
	return nil
}

func over(list []v1alpha1.RTAction) bool {
	for _, o := range list {
		if !rules.Phase(o.Status.Phase).Over() {
			return false
		}
	}
	return true
}

// free expects that nothing is reserved.
func (p *process) free() {
	p.Helper()
	p.look()
	for n := range p.store.Snapshot().Nodes() {
		if len(n.Reservations) > 0 {
			p.Errorf("on node %s is still reserved: %+v", n.Name, n.Reservations)
		}
	}
}
