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
	// again is when to look again where nothing else says so.
	again = 2 * time.Second
	// lost is after how long a silent agent is taken for one that does not come back: an agent or a node that starts again does so long before.
	lost = 10 * time.Minute
	// mostRelapses is how often the calm is doubled at most.
	mostRelapses = 5
)

// scene is all that the next step is decided on.
type scene struct {
	Episode
	// Sees: the node's agent may be believed. Sure: it was watched for long enough to say that nobody suffers.
	Sees, Sure bool
	// Silent is for how long the agent was not believed.
	Silent time.Duration
	// Closing: the node is being deleted. Nothing is begun there, and what was begun is brought to its end: that may take long, when a
	// pod may not be evicted.
	Closing   bool
	Tainted   bool
	Sufferers []Sufferer
	// Answers are the actions for the episode's cause, Returns those of its recovery.
	Answers, Returns []*v1alpha1.RTAction
	// Deserted are those answers that run for nobody any longer.
	Deserted []string
	// Entered is since when the stage is known to be as it is.
	Entered time.Time
	Options Options
	Now     time.Time
}

// step is the next thing to do. At most one of Stage, Taint, Untaint, Climb and Return is set; Withdraw comes first.
type step struct {
	// Stage to go to, with its message.
	Stage, Message string
	Taint, Untaint bool
	// Withdraw these actions, for nobody needs them.
	Withdraw []string
	// Climb: choose an action. Return: give back what can be given back, or go on to lifting the taint.
	Climb, Return bool
	// Beside are the answers under way beside which one is chosen.
	Beside []*v1alpha1.RTAction
	// Wait until looking again, and what for.
	Wait time.Duration
	For  string
}

// next decides what comes next.
func (s scene) next() step {
	switch {
	case !s.Active && len(s.Sufferers) > 0 && !s.Closing:
		return step{Stage: s.Sufferers[0].Source, Message: describe(s.Sufferers)}
	case !s.Active:
		return step{Untaint: s.Tainted}
	case !s.Sees && s.Silent >= lost:
		return s.abandoned()
	case !s.Sees:
		return step{Wait: again, For: "its agent is silent"}
	case len(s.Deserted) > 0:
		return step{Withdraw: s.Deserted, Wait: time.Millisecond}
	case len(s.Sufferers) > 0:
		return s.pressed()
	case !s.Sure:
		return step{Wait: again, For: "it was not watched for long enough to say that nobody suffers"}
	}
	return s.calm()
}

// pressed is the way up.
func (s scene) pressed() step {
	if !s.Pressed() {
		return step{Stage: s.Sufferers[0].Source, Message: describe(s.Sufferers), Withdraw: open(s.Returns, waitingOrRunning)}
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
		return step{Climb: true, Beside: beside}
	}
	if rest := done.Add(s.Options.Settle).Sub(s.Now); rest > 0 {
		return step{Wait: rest, For: "what was done has yet to show what it brought"}
	}
	if !slices.ContainsFunc(s.Sufferers, func(x Sufferer) bool { return x.Last.After(done.Add(reportLag)) }) {
		return step{Wait: again, For: "nothing was seen since the last action"}
	}
	return step{Climb: true, Beside: beside}
}

// abandoned ends the pressure of a node of which nobody says any longer whether anybody suffers. What waits is withdrawn, what runs ends within its
// timeout; what was moved stays, as nobody could put it back.
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

// calm is the way back.
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
	case s.Stage == StageRecovering && s.Closing: // nobody goes back to another core of it
		return step{Stage: StageLifting, Message: s.Message}
	case s.Stage == StageRecovering:
		return step{Return: true}
	}
	if s.Tainted {
		return step{Untaint: true}
	}
	return step{Stage: StageEnded, Message: s.Message}
}

// rest is how long to wait before the next step of the way back.
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

// describe says who suffers from what.
func describe(sufferers []Sufferer) string {
	first := sufferers[0]
	text := fmt.Sprintf("%s: %s", first.Where(), first.Detail)
	if more := len(sufferers) - 1; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// open are the names of the actions that are as asked.
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

// wantedStill tells whether an action runs and nobody has withdrawn it.
func wantedStill(o *v1alpha1.RTAction) bool {
	a, _ := record.Read(o) // for its phase
	return a.Phase == rules.Running && !a.Unwanted
}

func waitingOrRunning(o *v1alpha1.RTAction) bool { return !phaseOf(o).Over() }

// cannotBegin tells whether an action waits for what never comes.
func cannotBegin(o *v1alpha1.RTAction) bool {
	return waits(o) && (o.Status.WaitingFor == orchestration.ReasonNoExecutor || o.Status.WaitingFor == rules.ReasonLimit)
}

// lastDone is when the last action ended that has done something.
func lastDone(actions []*v1alpha1.RTAction) (at time.Time, ok bool) {
	for _, o := range actions {
		a, _ := record.Read(o) // for its times
		if (a.Phase == rules.Succeeded || a.Phase == rules.Failed) && a.Entered.After(at) {
			at, ok = a.Entered, true
		}
	}
	return at, ok
}
