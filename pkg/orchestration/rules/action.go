package rules

import (
	"fmt"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// Kind is what an action does.
type Kind string

// The kinds, from the cheapest.
const (
	// Rearrange squeezes containers of a node or moves them to other cores of it.
	Rearrange Kind = "Rearrange"
	// Migrate moves a pod to another node.
	Migrate Kind = "Migrate"
	// Preempt evicts less critical pods.
	Preempt Kind = "Preempt"
	// OpenNode has a node opened.
	OpenNode Kind = "OpenNode"
	// ReplaceNode has a node closed, and another opened before where its pods need that.
	ReplaceNode Kind = "ReplaceNode"
)

// Kinds lists them all, from the cheapest.
var Kinds = []Kind{Rearrange, Migrate, Preempt, OpenNode, ReplaceNode}

// Rung is the place of the kind on the ladder of architecture: 2 (within the node) to 5 (a node). Rungs 0
// and 1 are admission and the node's own escalation, which ask the queue for nothing. 0: the kind is unknown.
func (k Kind) Rung() int {
	switch k {
	case Rearrange:
		return 2
	case Migrate:
		return 3
	case Preempt:
		return 4
	case OpenNode, ReplaceNode:
		return 5
	}
	return 0
}

// Phase is how far an action has come.
type Phase string

// The phases. Running and RollingBack touch the world; the six last are for good.
const (
	// Waiting has not begun.
	Waiting Phase = "Waiting"
	// Running is being done.
	Running Phase = "Running"
	// RollingBack is being undone: it failed, was too late or is no longer wanted.
	RollingBack Phase = "RollingBack"
	// Succeeded has done what it was for.
	Succeeded Phase = "Succeeded"
	// Failed began, and could neither be finished nor be undone: the message says what is left.
	Failed Phase = "Failed"
	// RolledBack was undone.
	RolledBack Phase = "RolledBack"
	// Refused may never begin.
	Refused Phase = "Refused"
	// Withdrawn was no longer wanted before it began.
	Withdrawn Phase = "Withdrawn"
	// Expired did not begin in time.
	Expired Phase = "Expired"
)

// Phases lists them all, in the order of a life.
var Phases = []Phase{Waiting, Running, RollingBack, Succeeded, Failed, RolledBack, Refused, Withdrawn, Expired}

// Over tells whether nothing more becomes of the action.
func (p Phase) Over() bool {
	switch p {
	case Succeeded, Failed, RolledBack, Refused, Withdrawn, Expired:
		return true
	}
	return false
}

// Holds tells whether the action has what it uses.
func (p Phase) Holds() bool { return p == Running || p == RollingBack }

// Move is a container of a pod that goes to another core of its node or, without Container, the whole pod, which ends where it is.
type Move struct{ Pod, Container string }

// again tells whether a pod or container that is moved so was moved by the other: each container may go to another core once,
// and a pod whose containers went to other cores stays on its node.
func (m Move) again(o Move) bool {
	return m.Pod == o.Pod && (m.Container == "" || o.Container == "" || m.Container == o.Container)
}

// Action is something to be done to pods and nodes, and how far that has come. Times are of the
// controller's clock.
type Action struct {
	// ID is unique, and the same whenever the same is asked for the same cause.
	ID   string
	Kind Kind
	// Uses is what no other action may have meanwhile.
	Uses []Use
	// Moves are what does not stay where it is. To open a node for pods moves none of them.
	Moves []Move
	// Cause names the pressure that it answers. Nothing is moved twice for one.
	Cause string
	// Criticality of what it benefits.
	Criticality rt.Criticality
	// Since is when it was asked for.
	Since time.Time
	// StartBy is until when it is of use to begin; zero: always.
	StartBy time.Time
	// Limit is how long it may run, and how long its undoing may take, which has LeastUndo at least.
	Limit time.Duration

	Phase Phase
	// Entered is when it came into its phase.
	Entered time.Time
	// Unwanted: the controller that asked for it no longer does.
	Unwanted bool
	// Message says in words why it is in its phase, or what it waits for.
	Message string
}

// Validate tells whether the action may be accepted at all.
func (a Action) Validate() error {
	switch {
	case a.ID == "":
		return fmt.Errorf("id: must not be empty")
	case a.Kind.Rung() == 0:
		return fmt.Errorf("kind: %q is not one of %v", a.Kind, Kinds)
	case a.Limit <= 0:
		return fmt.Errorf("limit: %s is not a positive duration: what runs must end", a.Limit)
	case a.Since.IsZero():
		return fmt.Errorf("since: must be set: age decides on the order")
	case a.Criticality > rt.High:
		return fmt.Errorf("criticality: %s is not one of High, Middle, Low", a.Criticality)
	}
	for i, u := range a.Uses {
		if err := u.validate(); err != nil {
			return fmt.Errorf("uses[%d]: %w", i, err)
		}
	}
	return nil
}

// LeastUndo is how long undoing may take at least.
const LeastUndo = time.Minute

// Deadline is when the phase ends at the latest, and ok whether there is such a time.
func (a Action) Deadline() (at time.Time, ok bool) {
	switch {
	case a.Phase == Waiting && !a.StartBy.IsZero():
		return a.StartBy, true
	case a.Phase.Holds():
		return a.Entered.Add(a.limit()), true
	}
	return time.Time{}, false
}

// limit is how long the phase may take. A controller that gives an action little time says nothing about how long nodes take
// to end pods.
func (a Action) limit() time.Duration {
	if a.Phase == RollingBack {
		return max(a.Limit, LeastUndo)
	}
	return a.Limit
}
