package hollow

import "time"

// cursor walks through the happenings of a script: overruns happen n times, a period apart, and endless
// steps in every period until they are ended.
type cursor struct {
	steps  []Step
	origin time.Time
	period time.Duration
	step   int
	times  int64 // how often the step has happened
	begun  bool  // the step has happened before the eyes of this agent
	core   int32 // where the container was then
}

// podCursor walks the steps that concern a container; what happened until since is over.
func podCursor(steps []Step, container string, origin time.Time, period time.Duration, since time.Time) *cursor {
	c := &cursor{origin: origin, period: period}
	for _, s := range steps {
		if s.Container == "" || s.Container == container {
			c.steps = append(c.steps, s)
		}
	}
	c.skip(since)
	return c
}

// nodeCursor walks the steps of a node. All of them are walked from the first, because what they set
// stays.
func nodeCursor(steps []Step, origin time.Time) *cursor { return &cursor{steps: steps, origin: origin} }

// next is when the next happening is; ok is false at the end.
func (c *cursor) next() (at time.Time, ok bool) {
	if c == nil || c.step >= len(c.steps) {
		return time.Time{}, false
	}
	if c.satisfied() {
		c.end()
	}
	at = c.origin.Add(c.steps[c.step].After)
	if s := c.steps[c.step]; s.Verb == Overrun || s.endless() {
		at = at.Add(time.Duration(c.times) * c.period)
	}
	return at, true
}

// needs says that the step is about what jobs need.
func (c *cursor) needs() bool {
	return c != nil && c.step < len(c.steps) && c.steps[c.step].Verb == Need
}

// satisfied says that the next step ends what the container needs.
func (c *cursor) satisfied() bool {
	if !c.needs() || c.times == 0 || c.step+1 == len(c.steps) {
		return false
	}
	return c.steps[c.step].After+time.Duration(c.times)*c.period >= c.steps[c.step+1].After
}

// take moves past the next happening and tells its step.
func (c *cursor) take() Step {
	s := c.steps[c.step]
	c.times++
	if !s.endless() && (s.Verb != Overrun || c.times >= s.Number) {
		c.end()
	}
	return s
}

// end moves on to the next step.
func (c *cursor) end() { c.step, c.times, c.begun = c.step+1, 0, false }

// moved says that the container is on another core than when the step began.
func (c *cursor) moved(core int32) bool {
	if !c.begun {
		c.begun, c.core = true, core
	}
	return core != c.core
}

// skip moves past what happens until then. An endless step goes on afterwards.
func (c *cursor) skip(until time.Time) {
	for at, ok := c.next(); ok && !at.After(until); at, ok = c.next() {
		if c.steps[c.step].endless() && c.period > 0 {
			c.times += int64(until.Sub(at)/c.period) + 1
			continue
		}
		c.take()
	}
}
