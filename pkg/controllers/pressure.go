package controllers

import (
	"context"

	"github.com/awslabs/operatorpkg/controller"
	"sigs.k8s.io/karpenter/pkg/operator"

	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	rtstate "github.com/mainspring-rt/mainspring/pkg/state"
)

// pressure is the loop that answers real-time pressure. Its preemptions, and those for pending pods, are actions of one
// kind and of two reasons.
func pressure(op *operator.Operator, store *rtstate.Store, queue *orchestration.Queue, m moving, o ladder.Options) controller.Controller {
	queue.Handle(rules.Preempt, preemptions{
		pressed: ladder.NewPreempt(op.GetClient(), op.GetAPIReader(), store),
		pending: rtruntime.NewPreempt(op.GetAPIReader()),
	})
	return ladder.New(ladder.Dependencies{
		Clock: op.Clock, Client: op.GetClient(), Recorder: op.EventRecorder, Store: store, Actions: queue, Passage: m.passage, Options: o,
	})
}

// preemptions gives each to who does those of its reason.
type preemptions struct{ pressed, pending orchestration.Executor }

// Step implements orchestration.Executor.
func (p preemptions) Step(ctx context.Context, task orchestration.Task) (rules.Result, error) {
	if task.Object.Spec.Reason == ladder.ReasonPressure {
		return p.pressed.Step(ctx, task)
	}
	return p.pending.Step(ctx, task)
}
