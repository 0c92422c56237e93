package rtruntime

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// outdatedFor is how long the template of former settings stays for pods that the webhook has just given it.
const outdatedFor = time.Minute

// ensureTemplate makes the template of the claims that the webhook gives to pods, and removes those of
// former settings once no pod refers to them. Kubernetes makes claims from a template when it comes, so
// pods may be there before it.
func (c *mckubes) ensureTemplate(ctx context.Context, g *governance) (time.Duration, error) {
	list := &resourcev1.ResourceClaimTemplateList{}
	if err := c.Client.List(ctx, list, client.InNamespace(g.mckube.Namespace)); err != nil {
		return 0, fmt.Errorf("listing claim templates: %w", err)
	}
	current := ""
	template, err := rtdra.Template(g.mckube, c.Options.Granularity)
	if g.mckube.Spec.RTSettings != nil && err == nil { // the status says what is wrong with settings
		current = template.Name
		for _, name := range append([]string{current}, g.awaited()...) {
			named := template.DeepCopy()
			named.Name = name
			if err := c.createTemplate(ctx, g, named, list.Items); err != nil {
				return 0, err
			}
		}
	}
	return c.removeOutdated(ctx, g, current, list.Items)
}

// awaited are the templates that pods which came before the McKube wait for. A McKube that binds its pods to a node
// does not fill them: nothing can bind those pods any more.
func (g *governance) awaited() []string {
	if mcv1.UserNode(g.mckube) != "" {
		return nil
	}
	var out []string
	for _, p := range g.parts {
		for _, claim := range p.pod.Claims {
			if claim.Container == p.Container && p.Claim == nil && rtdra.Awaited(claim.Template) && !slices.Contains(out, claim.Template) {
				out = append(out, claim.Template)
			}
		}
	}
	return out
}

// createTemplate makes the template unless it exists. One of that name that the McKube does not own may ask
// for anything, so it is not used: that of an earlier McKube of the name goes by itself, any other is
// reported.
func (c *mckubes) createTemplate(ctx context.Context, g *governance, template *resourcev1.ResourceClaimTemplate, existing []resourcev1.ResourceClaimTemplate) error {
	for i := range existing {
		if existing[i].Name != template.Name {
			continue
		}
		if metav1.IsControlledBy(&existing[i], g.mckube) {
			return nil
		}
		g.taken = template.Name
		return fmt.Errorf("claim template %s/%s exists and does not belong to McKube %s; delete it", template.Namespace, template.Name, g.mckube.Name)
	}
	if err := c.Client.Create(ctx, template); err != nil {
		return fmt.Errorf("creating claim template %s: %w", template.Name, err)
	}
	return nil
}

func (c *mckubes) removeOutdated(ctx context.Context, g *governance, current string, existing []resourcev1.ResourceClaimTemplate) (time.Duration, error) {
	var soonest time.Duration
	now, unused := c.Clock.Now(), map[types.UID]bool{}
	for i := range existing {
		template := &existing[i]
		if template.Name == current || !metav1.IsControlledBy(template, g.mckube) || g.uses(template.Name) {
			continue
		}
		unused[template.UID] = true
		left := outdatedFor - c.outdated.age(client.ObjectKeyFromObject(g.mckube), template.UID, now)
		if left > 0 {
			soonest = earliest(soonest, left)
			continue
		}
		err := c.Client.Delete(ctx, template, client.Preconditions{UID: &template.UID})
		if client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("deleting claim template %s: %w", template.Name, err)
		}
	}
	c.outdated.keep(client.ObjectKeyFromObject(g.mckube), unused)
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

// sightings remember since when objects of McKubes have been seen to be so, as templates of former settings to be unused. They go by the
// controller's clock, so a restart begins anew.
type sightings struct {
	mu    sync.Mutex
	since map[types.NamespacedName]map[types.UID]time.Time
}

func newSightings() *sightings {
	return &sightings{since: map[types.NamespacedName]map[types.UID]time.Time{}}
}

// age is for how long the object has been so. A clock that went backwards begins anew.
func (o *sightings) age(mckube types.NamespacedName, object types.UID, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since[mckube] == nil {
		o.since[mckube] = map[types.UID]time.Time{}
	}
	first, known := o.since[mckube][object]
	if !known || now.Before(first) {
		o.since[mckube][object] = now
		return 0
	}
	return now.Sub(first)
}

// keep forgets the objects of the McKube that are not so any more.
func (o *sightings) keep(mckube types.NamespacedName, those map[types.UID]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for object := range o.since[mckube] {
		if !those[object] {
			delete(o.since[mckube], object)
		}
	}
	if len(o.since[mckube]) == 0 {
		delete(o.since, mckube)
	}
}

func (o *sightings) forget(mckube types.NamespacedName) { o.keep(mckube, nil) }
