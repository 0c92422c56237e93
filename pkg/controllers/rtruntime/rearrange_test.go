package rtruntime_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/test/mortal"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

func TestAnActionMovesAContainer(t *testing.T) {
	y := newYard(t)
	if y.core("b") != 0 {
		t.Fatalf("it begins with %s", y.where())
	}
	o := y.play(y.request("b", 1), nil)
	if o.Status.Phase != "Succeeded" || y.core("b") != 1 || y.core("a") != 0 || y.core("c") != 1 {
		t.Errorf("%s: %s; %s", o.Status.Phase, o.Status.Message, y.where())
	}
	if want := fmt.Sprintf("moved container app of pod default/%sb to core 1", y.prefix); o.Status.Message != want {
		t.Errorf("it says %q, want %q", o.Status.Message, want)
	}
}

// story is a day on which something goes wrong, or not.
type story struct {
	name      string
	to        int32
	meanwhile func(y *yard) func(turn int, m *mover, name string)
	// deaths: it is told again with the controller dying before each write.
	deaths bool
	// phases that it may end in, and what its message then says.
	phases, says string
}

func stories() []story {
	out := []story{
		{name: "undisturbed", deaths: true, to: 1, phases: "Succeeded", says: "moved container"},
		{name: "core-full", to: 1, phases: "RolledBack", says: "core 1 does not take container app of pod", meanwhile: func(y *yard) func(int, *mover, string) {
			y.pods["d"] = y.run("d", y.node, "Low", 60, 60, 1)
			return nil
		}},
		{name: "no-such-core", to: 9, phases: "RolledBack", says: "core 9 does not take container app of pod"},
		{name: "no-moves", to: -1, phases: "RolledBack", says: "moves: must name the containers"},
		{name: "agent-idle", to: 1, phases: "RolledBack", says: "It took longer than 20s: waits for the agent to move container", meanwhile: func(y *yard) func(int, *mover, string) {
			y.idle = true
			return nil
		}},
		{name: "agent-silent", to: 1, phases: "RolledBack", says: "is silent, and would move nothing", meanwhile: func(y *yard) func(int, *mover, string) {
			y.idle = true
			return func(turn int, _ *mover, _ string) { y.silent = turn >= 3 }
		}},
		{name: "pod-deleted", to: 1, phases: "RolledBack", says: "none of its containers runs on node", meanwhile: func(y *yard) func(int, *mover, string) {
			y.idle = true
			return func(turn int, _ *mover, _ string) {
				if turn == 3 {
					y.must(y.Delete(y.Context(), y.pods["b"], client.GracePeriodSeconds(0)))
				}
			}
		}},
	}
	for at := range 4 {
		out = append(out, story{name: fmt.Sprintf("withdrawn-%d", at), deaths: at > 1, to: 1, phases: "Withdrawn RolledBack Succeeded", meanwhile: func(y *yard) func(int, *mover, string) {
			y.idle = at == 3
			return withdrawnAt(y, at)
		}})
	}
	return out
}

// withdrawnAt has the requester of the action no longer want it from a turn on.
func withdrawnAt(y *yard, at int) func(int, *mover, string) {
	done := false
	return func(turn int, m *mover, name string) {
		if turn < at || done {
			return
		}
		err := m.queue.Withdraw(y.Context(), name, "the pressure is gone")
		done = err == nil
		if err != nil && !errors.Is(err, mortal.ErrDied) && !strings.Contains(err.Error(), "not ready") {
			y.must(err)
		}
	}
}

// tell plays a story, in which the controller may die, and looks at what is left.
func (s story) tell(t *testing.T, dieAt int) *yard {
	y := newYard(t)
	y.Writes, y.DieAt = 0, dieAt
	var meanwhile func(int, *mover, string)
	if s.meanwhile != nil {
		meanwhile = s.meanwhile(y)
	}
	o := y.play(y.request("b", s.to), meanwhile)
	phase := string(o.Status.Phase)
	if !strings.Contains(s.phases, phase) || !strings.Contains(o.Status.Message, s.says) {
		t.Errorf("it is %s: %s", phase, o.Status.Message)
	}
	want := 0
	if phase == "Succeeded" {
		want = 1
	}
	if got := y.core("b"); got != want && s.name != "pod-deleted" {
		t.Errorf("an action that is %s (%s) leaves %s", phase, o.Status.Message, y.where())
	}
	for _, s := range y.rtNode(y.node).Status.Servers {
		if s.PodUID == y.pods["b"].UID && !y.idle && int(s.Cores[0]) != want {
			t.Errorf("the agent has it on core %d", s.Cores[0])
		}
	}
	return y
}

// deathsPerStory is before how many of its writes, chosen at random, the controller dies in each story of a run of `make test`. A story has
// seven to thirty writes, and most take half a second.
const deathsPerStory = 2

// However an action ends, and whatever write the controller dies before: the container is on the new core and
// the action has succeeded, or it is where it was.
func TestAMoveIsDoneOrUndone(t *testing.T) {
	for _, s := range stories() {
		t.Run(s.name, func(t *testing.T) {
			y := s.tell(t, 0)
			if y.Writes == 0 || y.Writes > 30 {
				t.Fatalf("%d writes", y.Writes)
			}
			if !s.deaths {
				return
			}
			for _, at := range sampling.Points(t, 1, y.Writes, deathsPerStory) {
				t.Run(fmt.Sprintf("dies-%d", at), func(t *testing.T) { s.tell(t, at) })
			}
		})
	}
}

// Another action has taken what was left free: the container cannot go back, stays, and the action says so.
func TestAContainerThatCannotGoBackStays(t *testing.T) {
	y := newYard(t)
	y.idle = true
	o := y.play(y.request("b", 1), func(turn int, m *mover, name string) {
		if turn == 4 {
			y.pods["d"] = y.run("d", y.node, "High", 35, 35, 0)
		}
		if turn == 8 {
			y.must(m.queue.Withdraw(y.Context(), name, "the pressure is gone"))
		}
	})
	if o.Status.Phase != "Failed" || !strings.HasPrefix(o.Status.Message, "they stay where they are: core 0 does not take") || y.core("b") != 1 || y.core("d") != 0 {
		t.Errorf("%s: %s; %s", o.Status.Phase, o.Status.Message, y.where())
	}
}

// Where containers were is on record before any is moved.
func TestNothingMovesBeforeItIsOnRecord(t *testing.T) {
	y := newYard(t)
	m, ticket := y.submit(y.start(), y.request("b", 1))
	_, err := m.queue.Loops()[0].Reconcile(t.Context(), reconcile.Request{})
	y.must(err)
	o := &v1alpha1.RTAction{}
	y.must(y.Get(t.Context(), client.ObjectKey{Name: ticket.Name}, o))
	if o.Status.Phase != "Running" || len(m.running()) != 1 {
		t.Fatalf("it is %s", o.Status.Phase)
	}
	m.lookAndAct(y.node)
	if y.core("b") != 0 {
		t.Error("it was moved before anybody knows from where")
	}
	y.must(m.turn())
	y.must(y.Get(t.Context(), client.ObjectKey{Name: ticket.Name}, o))
	if from := o.Status.Progress["from"]; from != fmt.Sprintf(`{"%s/app":0}`, y.pods["b"].UID) || y.core("b") != 1 {
		t.Errorf("from %s, now %s", from, y.where())
	}
}

// While the node loop may still be writing what an action wanted, the action is not undone yet.
func TestAnActionIsNotUndoneWhileItIsBeingWritten(t *testing.T) {
	y := newYard(t)
	m, ticket := y.submit(y.start(), y.request("b", 1))
	steps := func(n int) {
		t.Helper()
		for range n {
			m.look()
			_, err := m.queue.Loops()[1].Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: ticket.Name}})
			y.must(err)
		}
	}
	_, err := m.queue.Loops()[0].Reconcile(t.Context(), reconcile.Request{})
	y.must(err)
	steps(2) // it is on record where the container is, and the node loop was asked
	writing := m.rearrange.Writes(y.node)
	writing.Lock()
	y.must(m.queue.Withdraw(t.Context(), ticket.Name, "the pressure is gone"))
	steps(3)
	if o := y.actions(t.Context())[0]; o.Status.Phase != "RollingBack" || o.Status.Progress["from"] == "" {
		t.Errorf("it is %s: %s", o.Status.Phase, o.Status.Message)
	}
	writing.Unlock()
	for range 3 {
		y.must(m.turn())
	}
	if o := y.actions(t.Context())[0]; o.Status.Phase != "RolledBack" || y.core("b") != 0 {
		t.Errorf("it is %s: %s; %s", o.Status.Phase, o.Status.Message, y.where())
	}
}

// A cache that is not complete yet knows of no nodes: that is no reason to give an action up, or to take it for undone.
func TestAnIncompleteCacheIsWaitedForByMoves(t *testing.T) {
	e := rtruntime.NewRearrange(rtruntime.RearrangeDependencies{Store: state.New(state.Options{})})
	for _, phase := range []rules.Phase{rules.Running, rules.RollingBack} {
		task := orchestration.Task{Action: rules.Action{Phase: phase}, Object: &v1alpha1.RTAction{}, Progress: map[string]string{}}
		if got, err := e.Step(t.Context(), task); err == nil || got.Undo || got.Outcome != "" {
			t.Errorf("%s: %+v, %v", phase, got, err)
		}
	}
}
