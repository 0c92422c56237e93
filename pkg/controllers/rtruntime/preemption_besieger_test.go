package rtruntime_test

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	karpenterstate "sigs.k8s.io/karpenter/pkg/controllers/state"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/placement"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/test/mortal"
)

// besieger is a controller with a cache of its own, which the test fills.
type besieger struct {
	*siege
	reconcile.Reconciler
	process *mortal.Process
	store   *state.Store
	queue   *orchestration.Queue
	seen    map[types.UID]client.Object
	places  *placement.Simulator
}

// start starts a preemption loop that knows what there is now, and nothing of its predecessors.
func (s *siege) start(loop func(rtruntime.Dependencies) reconcile.Reconciler) *besieger {
	s.Helper()
	own := clocktesting.NewFakeClock(s.clock.Now())
	b := &besieger{
		siege: s, store: state.New(state.Options{Clock: own}), seen: map[types.UID]client.Object{},
		places: &placement.Simulator{Client: s.API, Recorder: s.told, Clock: s.clock},
	}
	b.look()
	b.process = s.Process(s.seen)
	b.store.Complete()
	own.Step(time.Minute) // claims may name pods that are gone
	b.queue = s.actions(b.process)
	b.Reconciler = loop(rtruntime.Dependencies{
		Clock: s.clock, Client: b.process, Recorder: s.told, Store: b.store, FreedCapacity: func() {}, Actions: b.queue, Placement: b.places,
		InFlight: func(context.Context, *corev1.Pod) bool { return s.inFlight },
		Planned:  func(context.Context, *corev1.Pod) bool { return s.planned },
		Options:  rtruntime.Options{Granularity: granularity, PreemptionDelay: preemptionDelay, AgentTimeout: 10 * time.Second},
	})
	return b
}

func preempting(d rtruntime.Dependencies) reconcile.Reconciler { return rtruntime.NewPreemptions(d) }
func yielding(d rtruntime.Dependencies) reconcile.Reconciler   { return rtruntime.NewYields(d) }

// look fills the cache with what the API server has now.
func (b *besieger) look() {
	b.Helper()
	now := map[types.UID]client.Object{}
	for _, list := range []client.ObjectList{
		&corev1.NodeList{}, &resourcev1.ResourceSliceList{}, &corev1.PodList{}, &mcv1.McKubeList{}, &resourcev1.ResourceClaimList{},
	} {
		b.must(b.API.List(b.Context(), list))
		b.must(meta.EachListItem(list, func(o runtime.Object) error {
			object := o.(client.Object)
			if !b.mine(object) {
				return nil
			}
			now[object.GetUID()] = object
			return b.store.Update(o)
		}))
	}
	for uid, old := range b.seen {
		if now[uid] == nil {
			b.must(b.store.Delete(old))
		}
	}
	b.seen = now
	b.see()
}

// see has Karpenter's record show the same.
func (b *besieger) see() {
	b.Helper()
	b.places.Cluster = karpenterstate.NewCluster(b.clock, b.API, fake.NewCloudProvider())
	b.places.Cluster.SetSynced(true)
	for _, o := range b.seen {
		if n, ok := o.(*corev1.Node); ok {
			b.must(b.places.Cluster.UpdateNode(b.Context(), n))
		}
	}
	for _, o := range b.seen {
		if p, ok := o.(*corev1.Pod); ok {
			b.must(client.IgnoreNotFound(b.places.Cluster.UpdatePod(b.Context(), p)))
		}
	}
}

// act takes one step for a pod on what the cache has, after the queue has had its turn.
func (b *besieger) act(pod string) time.Duration {
	b.Helper()
	b.must(b.turn())
	return b.step(pod)
}

// step is one without the queue.
func (b *besieger) step(pod string) time.Duration {
	b.Helper()
	result, err := b.Reconcile(b.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: b.namespace, Name: pod}})
	b.must(err)
	return result.RequeueAfter
}
