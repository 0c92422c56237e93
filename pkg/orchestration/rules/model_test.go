package rules_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// The model is a queue with its storage, its executor and the world around it. Every transition of it is what
// one process does between two lines, or what the world does meanwhile; a crash loses the memory and keeps the
// storage. All states that it can reach are visited.

type model struct {
	actions []rules.Action
	// budget is what there is of a disruption budget.
	budget int
	of     rules.Key
	// returns: what is spent of it comes back. Of the actions that are streams another follows when one is over, behind all others.
	returns bool
	streams []string
}

// state is one of the model: for each action its record, and what was done to the world for it.
type state struct {
	record [3]record
	// done are the steps of each that the world has seen; stepped: its last result is not recorded yet.
	done    [3]uint8
	stepped [3]bool
	// verdicts are actions that were decided to start, and are not recorded as started yet.
	verdicts [3]bool
	// closed: the budget allows nothing for now. spent is how much of it is used up.
	closed bool
	spent  uint8
}

type record struct {
	phase    rules.Phase
	unwanted bool
	// free: the record no longer counts the budget.
	free bool
	// later: it has followed another.
	later bool
}

// steps until an action has done all: the first two change the world, and the second cannot be undone.
const steps = 2

func (m model) first() state {
	var s state
	for i := range m.actions {
		s.record[i].phase = rules.Waiting
	}
	return s
}

// action is the i-th as the queue reads it from its record.
func (m model) action(s state, i int) rules.Action {
	a := m.actions[i]
	a.Phase, a.Unwanted = s.record[i].phase, s.record[i].unwanted
	if s.record[i].free {
		a.Uses = slices.DeleteFunc(slices.Clone(a.Uses), func(u rules.Use) bool { return u.Key == m.of })
	}
	if s.record[i].later {
		a.Since = a.Since.Add(time.Second)
	}
	return a
}

// write records what an action has become.
func (m model) write(s *state, i int, a rules.Action) {
	s.record[i] = record{phase: a.Phase, unwanted: a.Unwanted, free: m.charge(a) < m.charge(m.actions[i]), later: s.record[i].later}
}

// charge is how much of the budget an action uses.
func (m model) charge(a rules.Action) (out int) {
	for _, u := range a.Uses {
		if m.budget > 0 && u.Key == m.of {
			out += u.Amount
		}
	}
	return out
}

func (m model) world(s state) rules.World {
	return rules.World{Capacity: func(k rules.Key) int {
		switch {
		case k == m.of && s.closed:
			return 0
		case k == m.of:
			return m.budget - int(s.spent)
		case k.Resource == rules.Pod:
			return 1
		}
		return 2
	}}
}

// decided is the state after the queue has gone through its ledger.
func (m model) decided(s state) state {
	all := make([]rules.Action, len(m.actions))
	for i := range all {
		all[i] = m.action(s, i)
	}
	for _, v := range rules.Decide(all, m.world(s), rules.Options{}, start) {
		i := slices.IndexFunc(all, func(a rules.Action) bool { return a.ID == v.ID })
		s.verdicts[i] = v.Start
		if v.Refuse {
			m.write(&s, i, all[i].Refuse(v.Message, start))
		}
	}
	return s
}

// next are the states that may follow.
func (m model) next(s state) map[string]state {
	out := map[string]state{}
	if s.verdicts == [3]bool{} {
		out["decide"] = m.decided(s)
	}
	crashed := s
	crashed.verdicts, crashed.stepped = [3]bool{}, [3]bool{}
	out["crash"] = crashed
	if m.budget > 0 && !m.returns {
		closed := s
		closed.closed = !s.closed
		out["budget"] = closed
	}
	if m.returns {
		out["return"] = m.returned(s)
	}
	for i, a := range m.actions {
		if slices.Contains(m.streams, a.ID) {
			out["another "+a.ID] = m.followed(s, i)
		} else {
			out["withdraw "+a.ID] = m.change(s, i, func(a rules.Action) rules.Action { return a.Withdraw("calm", start) })
			out["late "+a.ID] = m.change(s, i, func(a rules.Action) rules.Action { return a.Tick(start.Add(time.Hour)) })
		}
		if s.verdicts[i] {
			begun := m.change(s, i, func(a rules.Action) rules.Action { return a.Start(start) })
			begun.verdicts[i] = false
			out["start "+a.ID] = begun
		}
		for name, after := range m.stepsOf(s, i) {
			out[name+" "+a.ID] = after
		}
	}
	return out
}

// change is the state after an action was changed and recorded.
func (m model) change(s state, i int, f func(rules.Action) rules.Action) state {
	m.write(&s, i, f(m.action(s, i)))
	return s
}

// stepsOf are what the executor may do for an action, and what may be recorded of it.
func (m model) stepsOf(s state, i int) map[string]state {
	out := map[string]state{}
	switch {
	case s.stepped[i]:
		out["report"] = m.reported(s, i)
	case s.record[i].phase == rules.Running && s.done[i] < steps:
		if s.done[i] == 1 && m.world(s).Capacity(m.of) < m.charge(m.actions[i]) {
			failed := m.change(s, i, func(a rules.Action) rules.Action { return a.Report(rules.Result{Undo: true}, start) })
			out["refused"] = failed
			break
		}
		s.done[i]++
		if s.done[i] == steps {
			s.spent += uint8(m.charge(m.actions[i]))
		}
		s.stepped[i] = true
		out["step"] = s
	case s.record[i].phase == rules.Running:
		out["report"] = m.reported(s, i)
	case s.record[i].phase == rules.RollingBack:
		out["undo"] = m.undone(s, i)
	}
	return out
}

// reported is the state after the executor's result was recorded.
func (m model) reported(s state, i int) state {
	r := rules.Result{}
	if s.done[i] == steps {
		r = rules.Result{Outcome: rules.Succeeded, Spent: []rules.Key{m.of}}
	}
	s.stepped[i] = false
	return m.change(s, i, func(a rules.Action) rules.Action { return a.Report(r, start) })
}

// undone is the state after what can be undone was, and that was recorded.
func (m model) undone(s state, i int) state {
	r := rules.Result{Outcome: rules.Succeeded}
	if s.done[i] < steps {
		s.done[i], r = 0, rules.Result{Outcome: rules.RolledBack}
	}
	s.stepped[i] = false
	return m.change(s, i, func(a rules.Action) rules.Action { return a.Report(r, start) })
}

// wrong is what must never be.
func (m model) wrong(s state) string {
	for i := range m.actions {
		holds := s.record[i].phase.Holds()
		for j := range i {
			if holds && s.record[j].phase.Holds() && m.clash(s, i, j) {
				return fmt.Sprintf("%s and %s have the same at once", m.actions[i].ID, m.actions[j].ID)
			}
			if m.sameMove(i, j) && s.done[i] == steps && s.done[j] == steps {
				return "a pod was moved twice for one cause"
			}
		}
		if s.done[i] > 0 && !holds && s.record[i].phase != rules.Succeeded && s.record[i].phase != rules.Failed {
			return fmt.Sprintf("%s is %s and has touched the world", m.actions[i].ID, s.record[i].phase)
		}
		if s.record[i].phase == rules.Succeeded && s.done[i] < steps {
			return fmt.Sprintf("%s has succeeded at nothing", m.actions[i].ID)
		}
	}
	if promised := m.promised(s); promised > m.budget {
		return fmt.Sprintf("%d of a budget of %d are spent or promised", promised, m.budget)
	}
	return ""
}

// promised is how much of the budget is spent, and what actions that have begun may still spend: the world itself would refuse the step that exceeds it,
// but by then an action has begun for which there was nothing.
func (m model) promised(s state) int {
	out := int(s.spent)
	for i := range m.actions {
		if s.record[i].phase == rules.Running && s.done[i] < steps {
			out += m.charge(m.actions[i])
		}
	}
	return out
}

// clash: what two actions use together is more than there is.
func (m model) clash(s state, i, j int) bool {
	for _, u := range m.action(s, i).Uses {
		for _, o := range m.action(s, j).Uses {
			if u.Key == o.Key && u.Key != m.of && (u.Amount == rules.All || o.Amount == rules.All || u.Amount+o.Amount > 2) {
				return true
			}
		}
	}
	return false
}

// sameMove: both move the same container, or one moves a pod of which the other moves anything.
func (m model) sameMove(i, j int) bool {
	a, b := m.actions[i], m.actions[j]
	return a.Cause == b.Cause && slices.ContainsFunc(a.Moves, func(x rules.Move) bool {
		return slices.ContainsFunc(b.Moves, func(y rules.Move) bool {
			return x.Pod == y.Pod && (x.Container == y.Container || x.Container == "" || y.Container == "")
		})
	})
}

// returned is the state after one more is back of what was spent.
func (m model) returned(s state) state {
	s.spent -= min(s.spent, 1)
	return s
}

// ebbs tells whether an action that spends of the budget has done so and is not over: nothing comes back before another may have begun, if
// another may.
func (m model) ebbs(s state) bool {
	return slices.ContainsFunc([]int{0, 1, 2}, func(i int) bool { return s.record[i].phase.Holds() && s.done[i] == steps })
}

// followed is the state after an action that is over was followed by another, if it is a stream.
func (m model) followed(s state, i int) state {
	if s.record[i].phase.Over() && slices.Contains(m.streams, m.actions[i].ID) {
		s.record[i], s.done[i], s.stepped[i], s.verdicts[i] = record{phase: rules.Waiting, later: true}, 0, false, false
	}
	return s
}

// settles plays on without crashes, refusals or changes of mind, and tells whether every action ends. The streams flow on, and
// what is spent comes back when that is least of use to an action that needs more than one of it.
func (m model) settles(s state) bool {
	s.closed = false
	for range 40 {
		for i := range m.actions {
			s = m.followed(s, i)
			if s.verdicts[i] {
				s = m.change(s, i, func(a rules.Action) rules.Action { return a.Start(start) })
				s.verdicts[i] = false
			}
			for _, after := range m.stepsOf(s, i) {
				s = after
			}
		}
		s = m.decided(s)
		if m.returns && !m.ebbs(s) {
			s = m.returned(s)
		}
	}
	for i, a := range m.actions {
		blocked := !m.returns && m.charge(a) > 0 && int(s.spent) >= m.budget
		if !s.record[i].phase.Over() && !blocked && !slices.Contains(m.streams, a.ID) {
			return false
		}
	}
	return true
}

func TestEveryInterleavingOfSmallSystems(t *testing.T) {
	for name, m := range models {
		t.Run(name, func(t *testing.T) {
			from := map[state]string{m.first(): ""}
			queue := []state{m.first()}
			for len(queue) > 0 {
				s := queue[0]
				queue = queue[1:]
				if problem := m.wrong(s); problem != "" {
					t.Fatalf("%s after%s: %+v", problem, from[s], s)
				}
				if !m.settles(s) {
					t.Fatalf("an action is lost or starves after%s: %+v", from[s], s)
				}
				for step, after := range m.next(s) {
					if _, known := from[after]; !known {
						from[after] = from[s] + ", " + step
						queue = append(queue, after)
					}
				}
			}
			t.Logf("%d states", len(from))
			if len(from) < 1000 {
				t.Errorf("%d states are visited, so the model does next to nothing", len(from))
			}
		})
	}
}
