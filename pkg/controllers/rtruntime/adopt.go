package rtruntime

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

const (
	// suffixAdopted is that of the claims of adopted containers; further ones have a number behind it.
	suffixAdopted = "rt"
	// reserved is how long the room for a claim is kept until the cache has seen it.
	reserved = 10 * time.Second
	// refusedAgain is when to ask again for room that there was not: pods that leave wake the loop earlier.
	refusedAgain = 30 * time.Second
)

// adopt gives containers that ran before their McKube came a claim on the best core of their node, so that
// the scheduler and the provisioner count them. What finds no core stays an ordinary container, and the
// gates say why.
func (c *mckubes) adopt(ctx context.Context, g *governance) (time.Duration, error) {
	var after time.Duration
	for _, p := range g.parts {
		if !p.adoptable() {
			continue
		}
		best, gates := g.snapshot.BestCoreOn(p.pod.NodeName, p.Server)
		if len(gates) > 0 {
			after = refusedAgain
			continue
		}
		h := c.holding(p, suffixAdopted, best.Core, p.Server.Charge(c.Options.Granularity))
		if err := c.reserveAndHold(ctx, p, h); err != nil {
			return 0, err
		}
		c.publish(events.Adopted(g.mckube, string(p.pod.UID), p.where(best.Core)))
	}
	return after, nil
}

// adoptable tells whether the container runs without a claim that somebody else will allocate.
func (p part) adoptable() bool {
	if p.Err != nil || p.pod.NodeName == "" || p.Claim.Allocated() {
		return false
	}
	for _, claim := range p.pod.Claims {
		if claim.Name == rtdra.ClaimName(p.Container) {
			return false
		}
	}
	return p.Claim == nil || p.Claim.Name == claimName(p.pod.Name, p.Container, suffixAdopted)
}

// grow pays for a budget that became larger while its container runs: what a claim was given does not
// change, so the difference is a further claim on the same core. What the core refuses leaves the old
// budget in force.
func (c *mckubes) grow(ctx context.Context, g *governance) (time.Duration, error) {
	var after time.Duration
	for _, p := range g.parts {
		missing := c.missing(p)
		if missing <= 0 {
			continue
		}
		h := c.holding(p, suffixAdopted+"-"+strconv.Itoa(1+len(p.Further)), p.Claim.Core, missing)
		err := c.reserveAndHold(ctx, p, h)
		var refused *state.RefusedError
		switch {
		case errors.As(err, &refused):
			g.refusals[p.Server.ID] = fmt.Sprintf("core %d of node %s has no room for the new budget (needs %d ppm, others hold %d of %d ppm by %s); the old one stays in force",
				refused.Core, refused.Node, refused.Verdict.Need, refused.Verdict.Used, refused.Verdict.Limit, refused.Verdict.Test)
			c.publish(events.BudgetKept(g.mckube, string(p.pod.UID), g.refusals[p.Server.ID]))
			after = refusedAgain
		case err != nil:
			return 0, err
		}
	}
	return after, nil
}

// missing is what the claims of a container are short of its budget.
func (c *mckubes) missing(p part) rt.PPM {
	if p.Err != nil || p.server == nil || !p.Claim.Allocated() || p.Claim.Node != p.pod.NodeName {
		return 0
	}
	for _, further := range p.Further {
		if !further.Allocated() {
			return 0 // it is being allocated
		}
	}
	return p.Server.Charge(c.Options.Granularity) - p.server.Claimed
}

// reserveAndHold tests the core and reserves its room in one step, so that no two loops give it away
// twice, then makes the claim. The reservation covers the time until the cache has seen the claim.
func (c *mckubes) reserveAndHold(ctx context.Context, p part, h holding) error {
	r := state.Reservation{Key: p.Server.ID, Node: h.Node, Core: h.Core, Server: p.Server, Until: c.Clock.Now().Add(reserved)}
	if err := c.Store.Reserve(r); err != nil {
		return err
	}
	if _, err := c.hold(ctx, h); err != nil {
		c.Store.Release(r.Key)
		return err
	}
	return nil
}

func (c *mckubes) holding(p part, suffix string, core int, bandwidth rt.PPM) holding {
	return holding{
		Name: claimName(p.pod.Name, p.Container, suffix), Namespace: p.pod.Namespace,
		Pod: p.pod.Name, PodUID: p.pod.UID, Container: p.Container,
		Node: p.pod.NodeName, Core: core, Bandwidth: bandwidth,
		Server: p.Server, ChargedGranularityUs: c.Options.Granularity,
	}
}

func (p part) where(core int) events.Where {
	return events.Where{Pod: p.pod.Key().String(), Container: p.Container, Node: p.pod.NodeName, Core: core}
}
