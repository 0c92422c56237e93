package checkpoint

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// Know has the keeper read NodeCheckpoints so, instead of watching them.
func (k *Keeper) Know(get func(string) *v1alpha1.NodeCheckpoint) {
	k.get = get
	k.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
}

// Serve gives archives to other agents until ctx ends.
func (k *Keeper) Serve(ctx context.Context) error {
	return newServer(k.find, k.Rate).serve(ctx, k.Listener, k.identity.server())
}

// Sweep gives back what no NodeCheckpoint asks for.
func (k *Keeper) Sweep(ctx context.Context) { k.sweep(ctx); k.sweepNames(ctx) }

// Fingerprint of the keeper's certificate.
func (k *Keeper) Fingerprint() string { return k.identity.fingerprint }

// Client speaks with the holder of a certificate, as this keeper.
var ClientFor = func(k *Keeper, certificate string) interface {
	CloseIdleConnections()
} {
	return clientFor(k.identity, certificate)
}

// PatchOf is what is written of a side.
var PatchOf = patchOf

// TimeoutFor is how long writing a state of that size may take.
func TimeoutFor(size int64) time.Duration { return timeoutFor(size) }
