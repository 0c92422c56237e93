package hollow

import "time"

// cursor walks through the happenings of a script: a step with a number n happens n times, a period
// apart.
type cursor struct {
	steps  []Step
	origin time.Time
	period time.Duration
	step   int
	times  int64 // how often the step has happened
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
	at = c.origin.Add(c.steps[c.step].After)
	if c.steps[c.step].Verb == Overrun {
		at = at.Add(time.Duration(c.times) * c.period)
	}
	return at, true
}

// take moves past the next happening and tells its step.
func (c *cursor) take() Step {
	s := c.steps[c.step]
	c.times++
	if s.Verb != Overrun || c.times >= s.Number {
		c.step, c.times = c.step+1, 0
	}
	return s
}

func (c *cursor) skip(until time.Time) {
	for at, ok := c.next(); ok && !at.After(until); at, ok = c.next() {
		c.take()
	}
}
