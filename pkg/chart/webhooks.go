package chart

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/charts"
)

// UseWebhooksAt has the API server call the webhooks of an installed chart at a URL, for example https://localhost:9443, in place of the chart's Service. The
// controller, which runs there outside of the cluster, fills in paths and authorities.
func UseWebhooksAt(ctx context.Context, c client.Client, url string) error {
	local, err := charts.Webhooks(url)
	if err != nil {
		return err
	}
	for _, want := range local.Mutating {
		now := &admissionv1.MutatingWebhookConfiguration{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(want), now); err != nil {
			return fmt.Errorf("reading the chart's webhooks: %w", err)
		}
		now.Webhooks = want.Webhooks
		if err := c.Update(ctx, now); err != nil {
			return fmt.Errorf("setting the URL of webhooks: %w", err)
		}
	}
	for _, want := range local.Validating {
		now := &admissionv1.ValidatingWebhookConfiguration{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(want), now); err != nil {
			return fmt.Errorf("reading the chart's webhooks: %w", err)
		}
		now.Webhooks = want.Webhooks
		if err := c.Update(ctx, now); err != nil {
			return fmt.Errorf("setting the URL of webhooks: %w", err)
		}
	}
	return nil
}
