package ladder

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

const levelHigh = v1alpha1.LevelHigh

// Stages of an episode once no container is affected any longer. While a container is affected, the stage is the source of the
// pressure.
const (
	StageEased      = v1alpha1.PressureEased
	StageRecovering = v1alpha1.PressureRecovering
	StageLifting    = v1alpha1.PressureLifting
	StageEnded      = v1alpha1.PressureEnded
)

// Episode is one pressure of a node, from its beginning until everything is as before.
type Episode struct {
	// Node is the UID of the RTNode.
	Node types.UID
	// Begun is when the condition became True; of an episode that is over, when it became False.
	Begun          time.Time
	Active         bool
	Stage, Message string
	// Relapses is how often pressure came back recently, during the recovery or soon after.
	Relapses int
}

// soonAgain is for how many times the calm a new pressure counts as the old one's relapse.
const soonAgain = 4

// returned is how the message begins of one that came back: its relapses are stored with its stage, or not at all.
const returned = "Returned %d times of late: "

// episodeOf reads the condition.
func episodeOf(n *state.NodeView) Episode {
	if n.RTNode == nil {
		return Episode{}
	}
	e := Episode{Node: n.RTNode.UID}
	if c := meta.FindStatusCondition(n.RTNode.Status.Conditions, v1alpha1.ConditionRTPressure); c != nil {
		e.Begun, e.Active, e.Stage = c.LastTransitionTime.Time, c.Status == metav1.ConditionTrue, c.Reason
		e.Relapses, e.Message = parsed(c.Message)
	}
	return e
}

// parsed takes a stored message apart.
func parsed(message string) (relapses int, words string) {
	if _, err := fmt.Sscanf(message, returned, &relapses); err != nil || relapses < 1 {
		return 0, message
	}
	_, words, _ = strings.Cut(message, ": ")
	return relapses, words
}

// Pressed tells whether a container is affected, according to the stored condition.
func (e Episode) Pressed() bool { return e.Active && slices.Contains(Sources, e.Stage) }

// Cause is that of the actions which answer the pressure.
func (e Episode) Cause() string { return v1alpha1.PressureCause(e.Node, e.Begun) }

// LastResort is the cause of the one action that may move a pod again that was moved for the pressure.
func (e Episode) LastResort() string { return v1alpha1.LastResortCause(e.Node, e.Begun) }

// answers are the causes of actions that answer the pressure.
func (e Episode) answers() []string { return []string{e.Cause(), e.LastResort()} }

// RecoveryCause is the cause of the actions that move containers back.
func (e Episode) RecoveryCause() string { return v1alpha1.RecoveryCause(e.Node, e.Begun) }

// causes are the causes of all actions of the episode, while it is active.
func (e Episode) causes() []string {
	if !e.Active {
		return nil
	}
	return append(e.answers(), e.RecoveryCause())
}

// in is the episode in another stage. One that begins does so in a second of its own, so that no two have the same cause.
func (e Episode) in(stage, message string, now time.Time, o Options) Episode {
	next := Episode{Node: e.Node, Begun: e.Begun, Active: stage != StageEnded, Stage: stage, Message: message, Relapses: e.Relapses}
	switch {
	case !next.Pressed() || e.Pressed():
	case e.Active || !e.Begun.IsZero() && now.Sub(e.Begun) < soonAgain*o.Calm<<min(e.Relapses, mostRelapses):
		next.Relapses++ // what was undone, or came back, may be the reason
	default:
		next.Relapses = 0
	}
	if next.Active != e.Active {
		next.Begun = now.Truncate(time.Second)
		if !next.Begun.After(e.Begun) {
			next.Begun = e.Begun.Add(time.Second)
		}
	}
	return next
}

// condition is the episode as it is stored.
func (e Episode) condition() metav1.Condition {
	status, message := metav1.ConditionFalse, e.Message
	if e.Relapses > 0 {
		message = fmt.Sprintf(returned, e.Relapses) + message
	}
	if e.Active {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionRTPressure, Status: status, Reason: e.Stage, Message: message, LastTransitionTime: metav1.NewTime(e.Begun),
	}
}

// same tells whether nothing needs to be written.
func (e Episode) same(o Episode) bool {
	return e.Node == o.Node && e.Begun.Equal(o.Begun) && e.Active == o.Active && e.Stage == o.Stage
}
