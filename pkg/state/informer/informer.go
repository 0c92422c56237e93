// Package informer feeds the state cache from a manager's cache of API objects.
package informer

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// Kinds are what the state is made from.
func Kinds() []client.Object {
	return []client.Object{
		&corev1.Node{}, &corev1.Pod{}, &mcv1.McKube{}, &v1alpha1.RTNode{}, &v1alpha1.RTAction{},
		&resourcev1.ResourceSlice{}, &resourcev1.ResourceClaim{}, &resourcev1.ResourceClaimTemplate{},
	}
}

// Controller hands every change of those objects to a store. It runs on every replica: a replica that is
// not the leader answers webhooks, and knows everything when it becomes the leader.
type Controller struct {
	store *state.Store
	cache cache.Cache
	kinds []client.Object
}

// New feeds the store.
func New(store *state.Store) *Controller {
	return &Controller{store: store, kinds: Kinds()}
}

// Register adds the controller to the manager's runnables.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	c.cache = m.GetCache()
	return m.Add(c)
}

// NeedLeaderElection is false: see Controller.
func (c *Controller) NeedLeaderElection() bool { return false }

// Start adds event handlers to the informers, waits until the first lists have been handed over, says
// so to the store, and stays until the context ends.
func (c *Controller) Start(ctx context.Context) error {
	var synced []toolscache.InformerSynced
	for _, kind := range c.kinds {
		informer, err := c.cache.GetInformer(ctx, kind)
		if err != nil {
			return fmt.Errorf("getting informer of %T: %w", kind, err)
		}
		registration, err := informer.AddEventHandler(c.handler(ctx))
		if err != nil {
			return fmt.Errorf("handling events of %T: %w", kind, err)
		}
		defer func() { _ = informer.RemoveEventHandler(registration) }() // the informer stops with the manager anyway
		synced = append(synced, registration.HasSynced)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return ignoreEnd(ctx)
	}
	c.store.Complete()
	<-ctx.Done()
	return nil
}

func ignoreEnd(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	return ctx.Err()
}

// handler hands events to the store. Objects of the cache never change, so the store may keep them.
func (c *Controller) handler(ctx context.Context) toolscache.ResourceEventHandler {
	update := func(obj any) { c.report(ctx, c.store.Update, obj) }
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    update,
		UpdateFunc: func(_, now any) { update(now) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			c.report(ctx, c.store.Delete, obj)
		},
	}
}

// report logs what the store cannot take: the informer has no caller to return the error to.
func (c *Controller) report(ctx context.Context, do func(runtime.Object) error, obj any) {
	object, ok := obj.(runtime.Object)
	if !ok {
		log.FromContext(ctx).Error(fmt.Errorf("want a Kubernetes object, got %T", obj), "ignoring an event")
		return
	}
	if err := do(object); err != nil {
		log.FromContext(ctx).Error(err, "ignoring an event")
	}
}

// Trim has a cache drop a part that no reader here needs. The record of which client last wrote which field takes up to half of
// an object's memory.
func Trim(o *cache.Options) {
	o.DefaultTransform = cache.TransformStripManagedFields()
}
