package webhooks

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/webhooks/certs"
)

// certificate takes the certificate from the Secret whenever that changes; on every replica, for all
// of them answer.
type certificate struct {
	reader client.Reader
	server *certs.Server
}

func (c *certificate) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	secret := &corev1.Secret{}
	if err := c.reader.Get(ctx, req.NamespacedName, secret); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return reconcile.Result{}, nil // what is served stays good
		}
		return reconcile.Result{}, fmt.Errorf("getting the webhooks' Secret: %w", err)
	}
	end, err := c.server.Set(secret.Data)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !end.IsZero() {
		expiry.Set(float64(end.Unix()))
	}
	return reconcile.Result{}, nil
}
