package agent

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/mainspring-rt/mainspring/pkg/agent/discover"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// World is what the API server says of the node. It never changes.
type World struct {
	// NodeUID, Labels and Annotations of the Node; of the latter two those that the agent writes.
	NodeUID             types.UID
	Labels, Annotations map[string]string
	// RTNode of the node; nil when there is none, or one of an earlier Node of the name.
	RTNode *v1alpha1.RTNode
	// Containers of the node's pods.
	Containers map[discover.Key]discover.Container
}

// watcher keeps the World: the node's own Node, RTNode and Pods, and nothing else of the cluster.
type watcher struct {
	kube    *kube
	node    string
	changed *signal
	world   atomic.Pointer[World] // nil until everything has been listed once
}

// Name implements Service.
func (w *watcher) Name() string { return "watch" }

// World is what is known; nil before the first lists have come.
func (w *watcher) World() *World { return w.world.Load() }

// Run lists and watches until ctx ends. Client-go's reflectors come back by themselves, with back-off, when
// the API server was away; what was known stays meanwhile.
func (w *watcher) Run(ctx context.Context) error {
	dirty := newSignal()
	var stores []cache.Store
	var controllers []cache.Controller
	for _, k := range w.kinds() {
		store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
			ListerWatcher: cache.NewListWatchFromClient(k.client, k.resource, metav1.NamespaceAll, k.fields),
			ObjectType:    k.object, Transform: k.slim,
			Handler: cache.ResourceEventHandlerFuncs{
				AddFunc: func(any) { dirty.raise() }, UpdateFunc: func(_, _ any) { dirty.raise() }, DeleteFunc: func(any) { dirty.raise() },
			},
		})
		stores, controllers = append(stores, store), append(controllers, controller)
	}
	group, running := errgroup.WithContext(ctx)
	for _, c := range controllers {
		group.Go(func() error { c.RunWithContext(running); return nil })
	}
	group.Go(func() error { return w.keep(running, dirty, stores, controllers) })
	if err := group.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// keep makes a new World of every change.
func (w *watcher) keep(ctx context.Context, dirty *signal, stores []cache.Store, controllers []cache.Controller) error {
	for _, c := range controllers {
		if !cache.WaitForCacheSync(ctx.Done(), c.HasSynced) {
			return ctx.Err()
		}
	}
	for {
		next, err := worldOf(stores[0].List(), stores[1].List(), stores[2].List())
		if err != nil {
			return err
		}
		w.world.Store(next)
		w.changed.raise()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-dirty.raised():
		}
	}
}

// kind is one that is watched.
type kind struct {
	client   rest.Interface
	resource string
	object   runtime.Object
	fields   fields.Selector
	slim     cache.TransformFunc
}

func (w *watcher) kinds() []kind {
	mine := fields.OneTermEqualSelector("metadata.name", w.node)
	return []kind{
		{w.kube.core, "nodes", &corev1.Node{}, mine, slimNode},
		{w.kube.rt, "rtnodes", &v1alpha1.RTNode{}, mine, slimRTNode},
		{w.kube.core, "pods", &corev1.Pod{}, fields.OneTermEqualSelector("spec.nodeName", w.node), discover.Slim},
	}
}

// slimNode keeps of a Node what the agent writes to it; images are the largest part of one.
func slimNode(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion,
		Labels: only(node.Labels, nodeLabels), Annotations: only(node.Annotations, nodeAnnotations),
	}}, nil
}

func only(from map[string]string, keys []string) map[string]string {
	out := make(map[string]string, len(keys))
	for _, k := range keys {
		if v, ok := from[k]; ok {
			out[k] = v
		}
	}
	return out
}

func slimRTNode(obj any) (any, error) {
	if r, ok := obj.(*v1alpha1.RTNode); ok {
		r.ManagedFields, r.Annotations = nil, nil
	}
	return obj, nil
}

func worldOf(nodes, rtNodes, pods []any) (*World, error) {
	out := &World{}
	for _, o := range nodes {
		node, ok := o.(*corev1.Node)
		if !ok {
			return nil, fmt.Errorf("watching nodes: got %T", o)
		}
		out.NodeUID, out.Labels, out.Annotations = node.UID, node.Labels, node.Annotations
	}
	for _, o := range rtNodes {
		r, ok := o.(*v1alpha1.RTNode)
		if !ok {
			return nil, fmt.Errorf("watching RTNodes: got %T", o)
		}
		if ownedBy(r, out.NodeUID) {
			out.RTNode = r
		}
	}
	list := make([]*corev1.Pod, 0, len(pods))
	for _, o := range pods {
		pod, ok := o.(*corev1.Pod)
		if !ok {
			return nil, fmt.Errorf("watching pods: got %T", o)
		}
		list = append(list, pod)
	}
	out.Containers = discover.Containers(list)
	return out, nil
}

func ownedBy(r *v1alpha1.RTNode, uid types.UID) bool {
	for _, owner := range r.OwnerReferences {
		if owner.Kind == "Node" {
			return owner.UID == uid
		}
	}
	return false
}

// signal says that something has changed, however often.
type signal struct{ c chan struct{} }

func newSignal() *signal { return &signal{c: make(chan struct{}, 1)} }

func (s *signal) raise() {
	select {
	case s.c <- struct{}{}:
	default:
	}
}

func (s *signal) raised() <-chan struct{} { return s.c }
