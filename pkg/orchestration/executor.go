package orchestration

import (
	"context"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// Executor does actions of one kind.
type Executor interface {
	// Step does, or asks after, the next thing for an action that is Running, or undoes the next when it is RollingBack. It
	// is called again and again, with pauses, never twice at a time for one action, until it says what came of it.
	//
	// It must not mind being repeated: when the process ends between a step and its record, the next one takes the
	// step again. Nor may it do harm when it is late, for a process that is cut off may go on with the step it is at after
	// another has taken over: what it changes is changed under the condition (UID, resource version) of what the
	// step has read. An error is told to users and tried again. When the action's time is over it is undone, and when
	// that takes too long it has failed; nothing else ends the calls.
	Step(ctx context.Context, task Task) (rules.Result, error)
}

// Task is an action as the executor sees it.
type Task struct {
	// Action has Phase Running or RollingBack.
	Action rules.Action
	// Object is the record; the executor must not change it.
	Object *v1alpha1.RTAction
	// Progress is what the executor keeps from step to step, in at most 32 entries. It is saved after the step, even
	// when that returns an error.
	Progress map[string]string
}

// Undoing tells whether what was done is to be undone.
func (t Task) Undoing() bool { return t.Action.Phase == rules.RollingBack }
