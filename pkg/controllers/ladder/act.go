package ladder

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// visit is one look at a node.
type visit struct {
	*ladder
	snapshot *state.Snapshot
	node     *state.NodeView
	memory   *memory
	scene    scene
}

// take carries out a step. It returns the time until the next look at the node.
func (v visit) take(ctx context.Context, next step) (time.Duration, error) {
	if next.Escalate { // escalate reports itself whether there is an answer
		v.freed()
		return v.escalate(ctx, next.Beside)
	}
	wait, err := v.do(ctx, next)
	if err == nil {
		v.freed()
	}
	return wait, err
}

// do carries out any step except Escalate.
func (v visit) do(ctx context.Context, next step) (time.Duration, error) {
	switch {
	case next.Stage != "":
		return soon, v.enter(ctx, next.Stage, next.Message)
	case next.Taint || next.Untaint:
		return soon, v.taint(ctx, next.Taint)
	case next.Return:
		return v.giveBack(ctx)
	case next.Wait == 0 && v.memory.watch.stirs():
		return again, nil
	}
	return next.Wait, nil
}

// enter writes another stage.
func (v visit) enter(ctx context.Context, stage, message string) error {
	e := v.scene.in(stage, message, v.scene.Now, v.Options)
	if err := v.applyEpisode(ctx, v.node, e); err != nil {
		if !v.scene.Active {
			v.scene.Episode = e // a container is affected, even if the API server refuses the write
		}
		return v.barred(err)
	}
	v.memory.wrote, v.memory.patience = &e, v.scene.Now.Add(lag)
	return nil
}

// taint puts the taint on the node, or takes it away.
func (v visit) taint(ctx context.Context, on bool) error {
	if err := v.setTaint(ctx, v.node, on); err != nil {
		return v.barred(err)
	}
	v.memory.taint, v.memory.patience = &on, v.scene.Now.Add(lag)
	return nil
}

// escalate submits the action that the planner chooses, or reports that there is none.
func (v visit) escalate(ctx context.Context, beside []*v1alpha1.RTAction) (time.Duration, error) {
	m := v.memory
	if wait := m.planned.Sub(v.scene.Now); wait > 0 && wait <= replan {
		return wait, nil
	}
	machines := machinesOf(ctx, v.Client)
	passages := passages{ask: v.Passage, ctx: ctx, known: map[passageKey]Passage{}}
	chosen, ok := v.planner(ctx, beside, &machines, &passages).choose()
	switch {
	case machines.err != nil:
		v.unanswered(record.Short(machines.err.Error(), longestWhy))
		return 0, machines.err
	case len(beside) > 0 && (!ok || chosen.Vain): // that may help
		m.planned = v.scene.Now.Add(replan)
		v.unhelped(beside, chosen)
		return replan, nil
	case !ok && passages.err != nil:
		v.unanswered(strings.Join(chosen.Passed, "; ") + few("of these it is not known how they would go", passages.unknown))
		return 0, passages.err
	case !ok:
		m.planned = v.scene.Now.Add(replan)
		v.unanswered(strings.Join(chosen.Passed, "; "))
		return replan, nil
	case chosen.vain() != "" && m.unanswered == "":
		v.unanswered(chosen.vain())
	}
	if clear, err := v.makeWay(ctx, beside, chosen); err != nil || !clear {
		return again, err
	}
	chosen.Request.Message += few("of these it is not known how they would go", passages.unknown)
	return soon, v.ask(ctx, chosen)
}

// planner builds a planner from the current state.
func (v visit) planner(ctx context.Context, beside []*v1alpha1.RTAction, machines *machines, passages *passages) planner {
	since, any := lastDone(v.scene.Answers)
	if any {
		since = since.Add(reportLag)
	}
	return planner{
		Snapshot: v.snapshot, Node: v.node, Episode: v.scene.Episode, Affected: v.scene.Affected, Answers: v.scene.Answers, Beside: beside,
		Ticket: v.Actions.Find, Held: func(uid types.UID) bool { return v.Actions.HoldsPod(uid) != "" }, Fits: machines.fit,
		Passage: passages.of, Leave: leaveOf(ctx, v.Client, v.snapshot, v.node), Pool: poolOf(ctx, v.Client, v.node),
		Options: v.Options, Now: v.scene.Now, Since: since,
	}
}

// longestRefusal is the maximum length in bytes of a reported refusal of a write.
const longestRefusal = 480

// ask submits an action. Before that it records on the McKubes which pods leave the node.
func (v visit) ask(ctx context.Context, chosen answer) error {
	err := v.note(ctx, chosen.Leaving)
	if err == nil {
		if _, err = v.Actions.Submit(ctx, chosen.Request); err != nil {
			err = fmt.Errorf("answering the pressure of node %s: %w", v.node.Name, err)
		}
	}
	if err != nil {
		if forbidden(err) {
			v.unanswered(fmt.Sprintf("%s: %s", chosen.What, record.Short(err.Error(), longestRefusal)))
		}
		return err
	}
	metrics.PressureAnswers.WithLabelValues(string(chosen.Kind)).Inc()
	if chosen.vain() == "" {
		v.answered()
	}
	return nil
}

// giveBack moves one container back to the core of its claim. When no container is left that can move, the taint is next.
func (v visit) giveBack(ctx context.Context) (time.Duration, error) {
	request, later, ok := way{
		Node: v.node, Episode: v.scene.Episode, Answers: v.scene.Answers, Returns: v.scene.Returns,
		Ticket: v.Actions.Find, Options: v.Options, Now: v.scene.Now,
	}.next()
	switch {
	case !ok && !later.IsZero():
		return min(max(later.Sub(v.scene.Now), soon), again), nil
	case !ok:
		return soon, v.enter(ctx, StageLifting, v.scene.Message)
	}
	if _, err := v.Actions.Submit(ctx, request); err != nil {
		return 0, v.barred(fmt.Errorf("giving back what node %s took: %w", v.node.Name, err))
	}
	return soon, nil
}

// leave forgets a node that no longer has an RTNode: no pressure of it can continue. It removes a taint that is left.
func (l *ladder) leave(ctx context.Context, name string, n *state.NodeView) error {
	if err := l.forget(ctx, name); err != nil {
		return err
	}
	if n != nil && n.UID != "" && !n.Stale && n.Tainted(taintKey) {
		return l.setTaint(ctx, n, false)
	}
	return nil
}

// forget drops the memory of a node, and withdraws the actions that wait for it.
func (l *ladder) forget(ctx context.Context, name string) error {
	m := l.memories[name]
	if m == nil {
		return nil
	}
	for _, cause := range m.episode.causes() {
		list, err := l.Actions.ForCause(cause)
		if err != nil {
			return err
		}
		for _, waiting := range open(list, waits) {
			if err := l.Actions.Withdraw(ctx, waiting, "The node has gone"); err != nil {
				return fmt.Errorf("withdrawing action %s: %w", waiting, err)
			}
		}
	}
	m.count(Episode{})
	delete(l.memories, name)
	return nil
}
