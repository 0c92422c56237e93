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
	// refusedAgain is when to ask again for room that there was not: what leaves wakes the loop earlier.
	refusedAgain = 30 * time.Second
)

// adopt gives containers that ran before their McKube came a claim on the best core of their node, so that
// the scheduler and the provisioner count them. What finds no core stays an ordinary container, and the
// gates say why. One that cannot be served keeps no other back.
func (c *mckubes) adopt(ctx context.Context, g *governance) (time.Duration, error) {
	var after time.Duration
	var failed []error
	for _, p := range g.parts {
		if !p.adoptable() {
			continue
		}
		if wait := c.lostRaces.wait(p.Server.ID, c.Clock.Now()); wait > 0 {
			g.blocked[p.Server.ID] = p.lostRaceGate()
			after = earliest(after, wait)
			continue
		}
		best, gates := g.snapshot.BestCoreOn(p.pod.NodeName, p.Server)
		if len(gates) > 0 {
			after = earliest(after, again(p))
			continue
		}
		h := c.holding(p, suffixAdopted, best.Core, p.Server.Charge(c.Options.Granularity))
		err := c.reserveAndHold(ctx, g, p, h)
		var refused *state.RefusedError
		switch {
		case errors.As(err, &refused):
			after = earliest(after, soon) // another allocation took the core first; another core may do
		case err != nil:
			failed = append(failed, err)
		default:
			c.publish(events.Adopted(g.mckube, string(p.pod.UID), p.where(best.Core)))
		}
	}
	return after, errors.Join(failed...)
}

// again is when to ask again for room that there was not: after reservations, which nothing tells the end
// of, have expired.
func again(p part) time.Duration {
	if p.node != nil && len(p.node.Reservations) > 0 {
		return reserved
	}
	return refusedAgain
}

// adoptable tells whether the container runs without a claim that the scheduler will allocate.
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
	var failed []error
	for _, p := range g.parts {
		if p.overreaches() {
			g.blocked[p.Server.ID] = p.overreaching()
			continue
		}
		missing := p.missing(c.Options.Granularity)
		if missing <= 0 {
			continue
		}
		if wait := c.lostRaces.wait(p.Server.ID, c.Clock.Now()); wait > 0 {
			g.blocked[p.Server.ID] = p.lostRaceGate()
			after = earliest(after, wait)
			continue
		}
		h := c.holding(p, p.furtherSuffix(), p.Claim.Core, missing)
		err := c.reserveAndHold(ctx, g, p, h)
		var refused *state.RefusedError
		switch {
		case errors.As(err, &refused):
			g.blocked[p.Server.ID] = state.Gate{Name: state.GateCore, Container: p.Container, Reason: reasonBudgetKept, Message: kept(refused)}
			after = earliest(after, again(p))
		case err != nil:
			failed = append(failed, err)
		}
	}
	return after, errors.Join(failed...)
}

func kept(r *state.RefusedError) string {
	return fmt.Sprintf("core %d of node %s has no room for the new budget (needs %d ppm, others hold %d of %d ppm by %s); the old one stays in force",
		r.Core, r.Node, r.Verdict.Need, r.Verdict.Used, r.Verdict.Limit, r.Verdict.Test)
}

// overreaches tells whether the container's settings have changed so that a raise takes more than its core keeps for
// raises. Those in force stay so when the core keeps less than before, and nothing is refused then.
func (p part) overreaches() bool {
	if p.Err != nil || p.server == nil || p.server.McKube == nil || !p.Claim.Allocated() || p.node.Backed(p.server) {
		return false
	}
	return p.server.Spec == nil || !sameBudgets(entryOf(p.server), *p.server.Spec)
}

func (p part) overreaching() state.Gate {
	v := unbacked(p.node, p.server)
	out := state.Gate{Name: state.GateCore, Container: p.Container, Reason: v.Reason, Message: fmt.Sprintf(
		"raising the new budget takes %d ppm of core %d of node %s, whose escalation reserve is %d ppm; a new pod goes to a core that has it",
		v.Need, p.server.Witness, p.node.Name, v.Limit)}
	if p.server.Spec != nil {
		out.Reason, out.Message = reasonBudgetKept, out.Message+"; the old one stays in force"
	}
	return out
}

// missing is what the claims of a container are short of its budget.
func (p part) missing(granularity int64) rt.PPM {
	if p.Err != nil || p.server == nil || !p.Claim.Allocated() || p.Claim.Node != p.pod.NodeName {
		return 0
	}
	return p.Server.Charge(granularity) - p.server.Claimed
}

// furtherSuffix is that of the next further claim: of one that was made and not allocated, as a crash leaves
// it, or else the first that is free.
func (p part) furtherSuffix() string {
	taken := map[string]bool{}
	for _, claim := range append([]*state.ClaimView{p.Claim}, p.Further...) {
		taken[claim.Name] = claim.Allocated()
	}
	for n := 1; ; n++ { // one of the first len(taken)+1 is free
		suffix := suffixAdopted + "-" + strconv.Itoa(n)
		if !taken[claimName(p.pod.Name, p.Container, suffix)] {
			return suffix
		}
	}
}

// reserveAndHold tests the core and reserves its room in one step, so that no two loops give it away
// twice, then makes the claim. The reservation covers the time until the cache has seen the claim. It also stays
// when the claim could not be made: a write that failed for us may still have been done.
func (c *mckubes) reserveAndHold(ctx context.Context, g *governance, p part, h holding) error {
	r := state.Reservation{Key: p.Server.ID, Node: h.Node, Core: h.Core, Server: p.Server, Until: c.Clock.Now().Add(reserved)}
	if err := c.Store.Reserve(r); err != nil {
		return err
	}
	_, err := c.hold(ctx, h)
	var taken *takenError
	if errors.As(err, &taken) {
		g.blocked[p.Server.ID] = state.Gate{Name: state.GateClaim, Container: p.Container, Reason: reasonNameTaken, Message: taken.Error()}
	}
	return err
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
