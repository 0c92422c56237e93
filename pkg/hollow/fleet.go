package hollow

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
)

// Options are what a Fleet works with. All but Heartbeat and Workers are required.
type Options struct {
	// Client writes to the API server and reads from Cache, which must be made with CacheOptions.
	Client client.Client
	Cache  cache.Cache
	Clock  clock.WithTicker
	// Recorder tells about scripts that cannot be read.
	Recorder events.EventRecorder
	// Catalogue says which instance types have real-time cores.
	Catalogue *catalogue.Catalogue
	// Heartbeat is how often an agent shows that it lives; default 5s.
	Heartbeat time.Duration
	// Workers is how many nodes are looked at at once; default 8.
	Workers int
}

const (
	defaultHeartbeat = 5 * time.Second
	defaultWorkers   = 8
	// statusEvery is the least time between two reports of a node without need for a heartbeat.
	statusEvery = time.Second
	// retryEvery is the pause after an error.
	retryEvery = time.Second
	// soonest is the shortest pause between two looks at a node for the sake of time alone. A machine's way
	// does not depend on it.
	soonest = 100 * time.Millisecond
	// syncTimeout bounds one look at a node with its writes.
	syncTimeout = 30 * time.Second
)

// Fleet plays the agents of all simulated nodes of a cluster.
type Fleet struct {
	Options
	queue workqueue.TypedDelayingInterface[string] // names of nodes

	mu     sync.Mutex
	agents map[string]*agent // by name of the node; one worker at a time has a node
}

// New makes a fleet. Start it together with its cache.
func New(o Options) *Fleet {
	if o.Heartbeat == 0 {
		o.Heartbeat = defaultHeartbeat
	}
	if o.Workers == 0 {
		o.Workers = defaultWorkers
	}
	queue := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Clock: o.Clock})
	return &Fleet{Options: o, queue: queue, agents: map[string]*agent{}}
}

// Start plays until the context ends, and returns when nothing of it runs any more. It fails when the
// cache cannot be watched.
func (f *Fleet) Start(ctx context.Context) error {
	if err := f.watch(ctx); err != nil {
		return err
	}
	if !f.Cache.WaitForCacheSync(ctx) {
		return fmt.Errorf("filling the cache: %w", context.Cause(ctx))
	}
	var workers sync.WaitGroup
	for range f.Workers {
		workers.Go(func() {
			for f.work(ctx) {
			}
		})
	}
	<-ctx.Done()
	f.queue.ShutDown()
	workers.Wait()
	return nil
}

// watch looks at a node again when anything that its agent sees has changed.
func (f *Fleet) watch(ctx context.Context) error {
	for _, w := range []struct {
		object client.Object
		node   func(client.Object) string
	}{
		{&corev1.Node{}, client.Object.GetName},
		{&v1alpha1.RTNode{}, client.Object.GetName},
		{&corev1.Pod{}, nodeOfPod},
		{&resourcev1.ResourceSlice{}, nodeOfSlice},
	} {
		informer, err := f.Cache.GetInformer(ctx, w.object)
		if err != nil {
			return fmt.Errorf("watching %T: %w", w.object, err)
		}
		if _, err := informer.AddEventHandler(f.handler(w.node)); err != nil {
			return fmt.Errorf("watching %T: %w", w.object, err)
		}
	}
	return nil
}

func (f *Fleet) handler(node func(client.Object) string) toolscache.ResourceEventHandler {
	look := func(obj any) {
		if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if o, ok := obj.(client.Object); ok && node(o) != "" {
			f.queue.Add(node(o))
		}
	}
	return toolscache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, obj any) { look(obj) }, DeleteFunc: look}
}

func nodeOfPod(o client.Object) string {
	if pod, ok := o.(*corev1.Pod); ok {
		return pod.Spec.NodeName
	}
	return ""
}

func nodeOfSlice(o client.Object) string {
	if slice, ok := o.(*resourcev1.ResourceSlice); ok && slice.Spec.NodeName != nil {
		return *slice.Spec.NodeName
	}
	return ""
}

// work looks at one node; false ends the worker.
func (f *Fleet) work(ctx context.Context) bool {
	name, ended := f.queue.Get()
	if ended {
		return false
	}
	defer f.queue.Done(name)
	again, err := f.sync(ctx, name)
	if err != nil && ctx.Err() == nil {
		log.FromContext(ctx).Error(err, "playing the agent of a node", "node", name)
		again = retryEvery
	}
	if again > 0 {
		f.queue.AddAfter(name, max(again, soonest))
	}
	return true
}

// sync looks at a node: what is there, what has happened since, what is to be written. It returns after
// how long to look again; 0 means when something changes.
func (f *Fleet) sync(ctx context.Context, name string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	node := &corev1.Node{}
	if err := f.Client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		f.forget(name)
		return 0, client.IgnoreNotFound(err)
	}
	layout := f.layout(node)
	if layout == nil {
		f.forget(name)
		return 0, nil
	}
	rtNode, err := f.rtNode(ctx, node)
	if err != nil {
		return 0, err
	}
	now := f.Clock.Now()
	a := f.agentOf(node, layout)
	view, err := f.view(ctx, a, node, rtNode)
	if err != nil {
		return 0, err
	}
	a.observe(view, now)
	return f.write(ctx, a, node, rtNode)
}

// layout of a simulated node's cores; nil for every other node.
func (f *Fleet) layout(node *corev1.Node) *catalogue.RT {
	if node.Annotations[kwokKey] != kwokValue && node.Labels[kwokKey] != kwokValue {
		return nil
	}
	machine, ok := f.Catalogue.Lookup(node.Labels[corev1.LabelInstanceTypeStable])
	if !ok {
		return nil
	}
	return machine.RT
}

// kwokKey marks, as a label or annotation with this value, the nodes whose kubelet kwok plays.
const (
	kwokKey   = "kwok.x-k8s.io/node"
	kwokValue = "fake"
)

// agentOf is the agent of the node. A node that has taken the name of an earlier one gets a new agent.
func (f *Fleet) agentOf(node *corev1.Node, layout *catalogue.RT) *agent {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.agents[node.Name]
	if a == nil || a.node != node.UID {
		a = newAgent(node, layout.Cores())
		f.agents[node.Name] = a
	}
	return a
}

func (f *Fleet) forget(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.agents, name)
}
