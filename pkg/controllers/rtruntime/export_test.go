package rtruntime

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// Decision and Pressure are what the node loop decides and remembers.
type (
	Decision = nodeDecision
	Pressure = pressure
)

// Decide is the pure decision of the node loop.
func Decide(n *state.NodeView, before Pressure, now time.Time, granularity int64) Decision {
	return decide(n, before, now, granularity, moves{})
}

// DecideHeld is Decide while actions have some pods.
func DecideHeld(n *state.NodeView, granularity int64, held ...types.UID) Decision {
	return decide(n, Pressure{}, time.Time{}, granularity, moves{held: func(pod types.UID) bool { return slices.Contains(held, pod) }})
}

// DecideMoves is Decide for a node of which an action asks moves.
func DecideMoves(n *state.NodeView, granularity int64, to rt.Placement) Decision {
	return decide(n, Pressure{}, time.Time{}, granularity, moves{action: "a", to: to})
}

// Writes is held while what runs on a node is written.
func (e *Rearrange) Writes(node string) sync.Locker { return e.writes(node) }

// PlacementEvents are what the node loop tells of a decision.
func PlacementEvents(n *state.NodeView, d Decision) []events.Event {
	return placementEvents(n, d, moves{action: "a"})
}

// NewNodes is the node loop.
var NewNodes = newNodes

// Raised counts the servers that a spec asks to be raised.
func Raised(spec v1alpha1.RTNodeSpec) int { return raised(spec) }

// ServerOf reads an entry of a spec.
func ServerOf(e v1alpha1.RTServer) rt.Server { return serverOf(e) }

// Raisable are the servers of a core that pressure may raise together.
func Raisable(core rt.Core, servers []rt.Server, plan rt.CorePlan, held map[string]bool) map[string]bool {
	return raisable(core, servers, plan, held)
}

// Overbooked are the claims of a node that give way.
func Overbooked(n *state.NodeView) map[types.UID]bool { return overbooked(n) }

// NewPatience counts who gave way.
var NewPatience = newLostRaces

// GaveWay has a server wait.
func (o *lostRaces) GaveWay(id string, now time.Time) { o.gaveWay(id, now) }

// Wait is how long it waits.
func (o *lostRaces) Wait(id string, now time.Time) time.Duration { return o.wait(id, now) }

// Ask adds a reported overrun to those of an RTNode.
func Ask(r *v1alpha1.RTNode, id string, timestamp uint64, at time.Time) (string, bool, error) {
	return ask(r, id, asked{Timestamp: timestamp, At: at})
}

// AskedOn are the overruns reported for an RTNode's servers.
var AskedOn = askedOn

// ContainerIDs is what the index of pods has.
func ContainerIDs(p *corev1.Pod) []string { return containerIDs(p) }
