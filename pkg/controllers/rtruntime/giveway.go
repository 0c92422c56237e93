package rtruntime

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// reasonLostRace is the reason of a container whose core the scheduler gave away at the same time.
const reasonLostRace = "LostRace"

const (
	// lostRaceRetry is when to ask for a core again after the first time; every further time takes twice as long.
	lostRaceRetry = time.Second
	// lostRaceMaxWait bounds that wait.
	lostRaceMaxWait = 5 * time.Minute
)

// giveWay lets go of held claims on overbooked cores, once nothing runs on them any more: the loop over nodes
// takes their containers off the core by itself. Adoption then looks for another core.
func (c *mckubes) giveWay(ctx context.Context, g *governance) (time.Duration, error) {
	var after time.Duration
	var failed []error
	for _, p := range g.parts {
		giving := p.giving()
		if len(giving) == 0 {
			continue
		}
		g.blocked[p.Server.ID] = p.lostRaceGate()
		if p.runsOn(giving, c.Options.Granularity) {
			after = earliest(after, soon)
			continue
		}
		c.lostRaces.gaveWay(p.Server.ID, c.Clock.Now())
		if err := c.giveBack(ctx, giving); err != nil {
			failed = append(failed, err)
			continue
		}
		c.Store.Release(p.Server.ID)
	}
	return after, errors.Join(failed...)
}

// giving are the claims of the container that give way, its first one last.
func (p part) giving() []*state.ClaimView {
	if p.Err != nil || p.server == nil {
		return nil
	}
	return overbooked(p.node).of(p.server)
}

// runsOn tells whether the node is still told to run what the container's other claims do not pay for.
func (p part) runsOn(giving []*state.ClaimView, granularity int64) bool {
	if p.server.Spec == nil {
		return false
	}
	rest := p.server.Claimed
	for _, claim := range giving {
		rest -= claim.Claimed
	}
	return serverOf(*p.server.Spec).Charge(granularity) > rest
}

// lostRaceGate is the gate of a container that gave way.
func (p part) lostRaceGate() state.Gate {
	gate := state.Gate{
		Name: state.GateCore, Container: p.Container, Reason: reasonLostRace,
		Message: fmt.Sprintf("the scheduler gave away the core of node %s that was held for it at the same moment; another one is looked for", p.pod.NodeName),
	}
	if p.Claim.Allocated() && !p.Claim.Held {
		gate.Reason, gate.Message = reasonBudgetKept, "the scheduler gave away the room for the new budget at the same moment; it is tried again"
	}
	return gate
}

// giveBack lets the claims go, those of them that are still what the cache says.
func (c *mckubes) giveBack(ctx context.Context, claims []*state.ClaimView) error {
	for _, view := range claims {
		claim := &resourcev1.ResourceClaim{}
		err := c.Client.Get(ctx, types.NamespacedName{Namespace: view.Namespace, Name: view.Name}, claim)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading claim %s/%s: %w", view.Namespace, view.Name, err)
		}
		if err != nil || claim.UID != view.UID || claim.Labels[v1alpha1.LabelHeldFor] == "" {
			continue
		}
		if err := c.letGo(ctx, claim); err != nil {
			return err
		}
	}
	return nil
}

// lostRaces remembers, by server, how often it gave way, so that two allocators do not chase each other. A controller that
// loses it only waits for a shorter time.
type lostRaces struct {
	mu   sync.Mutex
	byID map[string]patience
}

type patience struct {
	times int
	until time.Time
}

func newLostRaces() *lostRaces { return &lostRaces{byID: map[string]patience{}} }

// gaveWay has the server wait, twice as long as the last time.
// It forgets servers whose wait ended more than lostRaceMaxWait ago.
// Trying to give way again within the wait counts once.
func (o *lostRaces) gaveWay(id string, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for other, p := range o.byID {
		if now.Sub(p.until) > lostRaceMaxWait {
			delete(o.byID, other)
		}
	}
	p := o.byID[id]
	if now.Before(p.until) {
		return
	}
	wait := min(lostRaceRetry<<min(p.times, 16), lostRaceMaxWait)
	o.byID[id] = patience{times: p.times + 1, until: now.Add(wait)}
}

// wait is how long the server has to wait for another core; 0 is not at all. A clock that jumped back makes no server
// wait longer than lostRaceMaxWait.
func (o *lostRaces) wait(id string, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return min(max(0, o.byID[id].until.Sub(now)), lostRaceMaxWait)
}
