package ladder

import (
	"fmt"
	"slices"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

const (
	// reportLag is how old what an agent reports may be: events up to so long after an action say nothing about it.
	reportLag = 2 * time.Second
	// again is the time until the next look if nothing else determines it.
	again = 2 * time.Second
	// lost is the time after which the controller regards a silent agent as lost. An agent or a node that restarts reports long
	// before.
	lost = 10 * time.Minute
	// mostRelapses is how often the calm is doubled at most.
	mostRelapses = 5
)

// scene is the input of the next decision.
type scene struct {
	Episode
	// Sees: the node's agent is alive. Sure: the controller has watched the node long enough to say that no container is
	// affected.
	Sees, Sure bool
	// Silent is the time for which the agent has not been alive.
	Silent time.Duration
	// Closing: the node is being deleted. The controller begins nothing there, and finishes what it began. That may take long if
	// a pod must not be evicted.
	Closing  bool
	Tainted  bool
	Affected []AffectedContainer
	// Answers are the actions for the episode's cause, Returns those of its recovery.
	Answers, Returns []*v1alpha1.RTAction
	// Orphaned are the answers that run although no pod needs them any longer.
	Orphaned []string
	// Entered is the time since which the controller knows the current stage.
	Entered time.Time
	Options Options
	Now     time.Time
}

// step is the next thing to do. At most one of Stage, Taint, Untaint, Escalate and Return is set; Withdraw comes first.
type step struct {
	// Stage to go to, with its message.
	Stage, Message string
	Taint, Untaint bool
	// Withdraw lists the actions to withdraw, because no container needs them.
	Withdraw []string
	// Escalate: choose an action. Return: undo one move, or go on to lifting the taint.
	Escalate, Return bool
	// Beside are the actions in progress beside which the planner chooses one.
	Beside []*v1alpha1.RTAction
	// Wait is the time until the next look, and For is what the controller waits for.
	Wait time.Duration
	For  string
}

// next decides on the next step.
func (s scene) next() step {
	switch {
	case !s.Active && len(s.Affected) > 0 && !s.Closing:
		return step{Stage: s.Affected[0].Source, Message: describe(s.Affected)}
	case !s.Active:
		return step{Untaint: s.Tainted}
	case !s.Sees && s.Silent >= lost:
		return s.abandoned()
	case !s.Sees:
		return step{Wait: again, For: "its agent is silent"}
	case len(s.Orphaned) > 0:
		return step{Withdraw: s.Orphaned, Wait: time.Millisecond}
	case len(s.Affected) > 0:
		return s.pressed()
	case !s.Sure:
		return step{Wait: again, For: "it was not watched for long enough to say that nobody suffers"}
	}
	return s.calm()
}

// pressed is the next step while a container is affected.
func (s scene) pressed() step {
	if !s.Pressed() {
		return step{Stage: s.Affected[0].Source, Message: describe(s.Affected), Withdraw: open(s.Returns, waitingOrRunning)}
	}
	if s.Closing {
		return step{Wait: again, For: "the node is being closed"}
	}
	if !s.Tainted {
		return step{Taint: true}
	}
	if stuck := open(s.Answers, cannotBegin); len(stuck) > 0 {
		return step{Withdraw: stuck, Wait: time.Millisecond}
	}
	beside, blocker := s.beside()
	if blocker != "" {
		return step{Wait: again, For: "action " + blocker + " is under way"}
	}
	done, ok := lastDone(s.Answers)
	if !ok {
		return step{Escalate: true, Beside: beside}
	}
	if rest := done.Add(s.Options.Settle).Sub(s.Now); rest > 0 {
		return step{Wait: rest, For: "what was done has yet to show what it brought"}
	}
	if !slices.ContainsFunc(s.Affected, func(x AffectedContainer) bool { return x.Last.After(done.Add(reportLag)) }) {
		return step{Wait: again, For: "nothing was seen since the last action"}
	}
	return step{Escalate: true, Beside: beside}
}

// abandoned ends the pressure of a node whose agent is lost, so that no report says whether a container is affected. The
// controller withdraws waiting actions. Running actions end within their timeouts. Moved containers stay, because no agent could
// move them back.
func (s scene) abandoned() step {
	all := append(slices.Clone(s.Answers), s.Returns...)
	if waiting := open(all, waits); len(waiting) > 0 {
		return step{Withdraw: waiting, Wait: time.Millisecond}
	}
	if under := open(all, waitingOrRunning); len(under) > 0 {
		return step{Wait: again, For: "action " + under[0] + " is under way"}
	}
	switch {
	case s.Stage != StageLifting:
		message := fmt.Sprintf("Its agent has not been heard of for %s, and nobody knows whether somebody still suffers; %s", lost, s.Message)
		return step{Stage: StageLifting, Message: message}
	case s.Tainted:
		return step{Untaint: true}
	}
	return step{Stage: StageEnded, Message: s.Message}
}

// calm is the next step while no container is affected.
func (s scene) calm() step {
	waiting := open(s.Answers, waits)
	switch {
	case s.Pressed():
		return step{Stage: StageEased, Message: "Nobody suffers; " + s.Message, Withdraw: waiting}
	case len(waiting) > 0:
		return step{Withdraw: waiting, Wait: time.Millisecond}
	}
	rest := s.rest()
	if running := open(s.Answers, wantedStill); len(running) > 0 && rest <= 0 {
		return step{Withdraw: running, Wait: again, For: "nobody needs action " + running[0] + " any longer"}
	}
	if under := open(append(slices.Clone(s.Answers), s.Returns...), waitingOrRunning); len(under) > 0 {
		return step{Wait: again, For: "action " + under[0] + " is under way"}
	}
	if rest > 0 {
		return step{Wait: rest, For: "nobody suffers; what was taken is given back step by step"}
	}
	switch {
	case s.Stage == StageEased:
		return step{Stage: StageRecovering, Message: s.Message}
	case s.Stage == StageRecovering && s.Closing: // the controller moves no container between cores of a closing node
		return step{Stage: StageLifting, Message: s.Message}
	case s.Stage == StageRecovering:
		return step{Return: true}
	}
	if s.Tainted {
		return step{Untaint: true}
	}
	return step{Stage: StageEnded, Message: s.Message}
}

// rest is the time until the next step of the recovery.
func (s scene) rest() time.Duration {
	pause, from := s.Options.RecoveryInterval, s.Entered
	if s.Stage == StageEased {
		pause = s.Options.Calm << min(s.Relapses, mostRelapses)
	}
	if s.Stage == StageLifting && s.Tainted {
		return 0 // the step before was the pause
	}
	if done, ok := lastDone(s.Returns); ok && done.After(from) {
		from = done
	}
	return from.Add(pause).Sub(s.Now)
}

// describe says which containers are affected, and by what.
func describe(affected []AffectedContainer) string {
	first := affected[0]
	text := fmt.Sprintf("%s: %s", first.Where(), first.Detail)
	if more := len(affected) - 1; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// open lists the names of the actions that satisfy a condition.
func open(actions []*v1alpha1.RTAction, is func(*v1alpha1.RTAction) bool) []string {
	var out []string
	for _, o := range actions {
		if is(o) {
			out = append(out, o.Name)
		}
	}
	return out
}

func phaseOf(o *v1alpha1.RTAction) rules.Phase {
	a, _ := record.Read(o) // what is wrong with it is in its message
	return a.Phase
}

func waits(o *v1alpha1.RTAction) bool { return phaseOf(o) == rules.Waiting }

// wantedStill tells whether an action runs and has not been withdrawn.
func wantedStill(o *v1alpha1.RTAction) bool {
	a, _ := record.Read(o) // for its phase
	return a.Phase == rules.Running && !a.Unwanted
}

func waitingOrRunning(o *v1alpha1.RTAction) bool { return !phaseOf(o).Over() }

// cannotBegin tells whether an action waits for a condition that will never hold.
func cannotBegin(o *v1alpha1.RTAction) bool {
	return waits(o) && (o.Status.WaitingFor == orchestration.ReasonNoExecutor || o.Status.WaitingFor == rules.ReasonLimit)
}

// lastDone is when the last action ended that succeeded or failed.
func lastDone(actions []*v1alpha1.RTAction) (at time.Time, ok bool) {
	for _, o := range actions {
		a, _ := record.Read(o) // for its times
		if (a.Phase == rules.Succeeded || a.Phase == rules.Failed) && a.Entered.After(at) {
			at, ok = a.Entered, true
		}
	}
	return at, ok
}
