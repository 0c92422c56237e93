package rtruntime

import (
	"context"
	"fmt"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// outdated is how long the template of former settings stays for pods that the webhook has just given it.
const outdated = time.Minute

// ensureTemplate makes the template of the claims that the webhook gives to pods, and removes those of
// former settings once no pod refers to them. Kubernetes makes claims from a template when it comes, so
// pods may be there before it.
func (c *mckubes) ensureTemplate(ctx context.Context, g *governance) (time.Duration, error) {
	if g.mckube.Spec.RTSettings == nil {
		return 0, nil
	}
	template, err := rtdra.Template(g.mckube, c.Options.Granularity)
	if err != nil {
		return 0, nil //nolint:nilerr // the settings are at fault, and the status says so
	}
	if !g.snapshot.Template(template.Namespace, template.Name) {
		if err := c.createTemplate(ctx, g, template); err != nil {
			return 0, err
		}
	}
	return c.removeOutdated(ctx, g, template.Name)
}

func (c *mckubes) createTemplate(ctx context.Context, g *governance, template *resourcev1.ResourceClaimTemplate) error {
	err := c.Client.Create(ctx, template)
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return fmt.Errorf("creating claim template %s: %w", template.Name, err)
		}
		return nil
	}
	existing := &resourcev1.ResourceClaimTemplate{}
	if err := c.Client.Get(ctx, client.ObjectKeyFromObject(template), existing); err != nil {
		return fmt.Errorf("reading claim template %s: %w", template.Name, err)
	}
	if !metav1.IsControlledBy(existing, g.mckube) {
		return fmt.Errorf("claim template %s/%s exists and is not owned by McKube %s; delete it", template.Namespace, template.Name, g.mckube.Name)
	}
	return nil
}

func (c *mckubes) removeOutdated(ctx context.Context, g *governance, current string) (time.Duration, error) {
	list := &resourcev1.ResourceClaimTemplateList{}
	if err := c.Client.List(ctx, list, client.InNamespace(g.mckube.Namespace)); err != nil {
		return 0, fmt.Errorf("listing claim templates: %w", err)
	}
	var since time.Time
	for i := range list.Items {
		if list.Items[i].Name == current {
			since = list.Items[i].CreationTimestamp.Time
		}
	}
	var soonest time.Duration
	for i := range list.Items {
		template := &list.Items[i]
		if template.Name == current || !metav1.IsControlledBy(template, g.mckube) || g.uses(template.Name) {
			continue
		}
		if left := outdated - c.Clock.Since(since); since.IsZero() || left > 0 {
			soonest = earliest(soonest, max(left, soon))
			continue
		}
		err := c.Client.Delete(ctx, template, client.Preconditions{UID: &template.UID})
		if client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("deleting claim template %s: %w", template.Name, err)
		}
	}
	return soonest, nil
}

// uses tells whether a pod that the McKube matches refers to the template.
func (g *governance) uses(template string) bool {
	for _, pod := range g.snapshot.PodsFor(g.mckube) {
		for _, claim := range pod.Claims {
			if claim.Template == template {
				return true
			}
		}
	}
	return false
}
