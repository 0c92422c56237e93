package orchestration

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrDeposed is the error of a queue from which another process has taken over. The queue may take over again after a while,
// should its process still be there: a process that has lost the election is gone by then.
var ErrDeposed = errors.New("another controller has taken the queue over")

// gate is the Lease of the queue. Leader election already lets one controller act at a time; the gate is for what an
// earlier leader still has in hand when it has lost and does not know. It has no expiry.
type gate struct {
	client client.Client
	reader client.Reader
	key    types.NamespacedName
	holder string
	now    func() metav1.MicroTime
}

// take makes this queue the holder, whichever process was it before.
func (g *gate) take(ctx context.Context) error {
	lease := &coordinationv1.Lease{}
	err := g.reader.Get(ctx, g.key, lease)
	if apierrors.IsNotFound(err) {
		return g.create(ctx)
	}
	if err != nil {
		return fmt.Errorf("reading Lease %s: %w", g.key, err)
	}
	lease.Spec.HolderIdentity = &g.holder
	lease.Spec.AcquireTime = ptr.To(g.now())
	lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
	if err := g.client.Update(ctx, lease); err != nil {
		return fmt.Errorf("taking Lease %s: %w", g.key, err)
	}
	return nil
}

func (g *gate) create(ctx context.Context) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: g.key.Namespace, Name: g.key.Name}}
	lease.Spec.HolderIdentity = &g.holder
	lease.Spec.AcquireTime = ptr.To(g.now())
	lease.Spec.LeaseTransitions = ptr.To[int32](1)
	if err := g.client.Create(ctx, lease); err != nil {
		return fmt.Errorf("creating Lease %s: %w", g.key, err)
	}
	return nil
}

// held asks the API server, not a cache, whether this queue is still the holder.
func (g *gate) held(ctx context.Context) error {
	_, err := g.own(ctx)
	return err
}

// own is the Lease, as the API server has it, while this queue is the holder.
func (g *gate) own(ctx context.Context) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	if err := g.reader.Get(ctx, g.key, lease); err != nil {
		return nil, fmt.Errorf("reading Lease %s: %w", g.key, err)
	}
	if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder != g.holder {
		return nil, fmt.Errorf("%w: Lease %s is held by %q", ErrDeposed, g.key, holder)
	}
	return lease, nil
}
