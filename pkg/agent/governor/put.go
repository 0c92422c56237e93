package governor

import (
	"time"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// A refused write is tried again after this time, doubled for every refusal up to the other.
const (
	firstRetry = int64(time.Millisecond)
	lastRetry  = int64(time.Second)
)

// advance brings the accounts to now. Time does not go back.
func (c *Core) advance(now int64) {
	c.bandwidth.advance(now)
	c.windows.advance(now)
}

// due is what a server's budget takes from the core.
func (c *Core) due(s *server, budget int64) rt.PPM {
	if s.paid && budget > 0 {
		budget = max(budget, s.RaiseToUs)
	}
	return s.charge(budget, c.options.GranularityUs)
}

// needs is what must be free for a budget, beside what the server has or still holds.
func (c *Core) needs(s *server, budget int64) rt.PPM {
	return c.due(s, budget) - s.charged - c.bandwidth.owns(s.serial)
}

// fits says that a budget may be promised to a period released at since.
func (c *Core) fits(s *server, budget, since int64) bool {
	if need := c.needs(s, budget); need > 0 && c.bandwidth.most(since)+need > c.limit {
		return false
	}
	return c.windowFree(s, budget, since)
}

// windowFree says that a Limited server has one of the plan's windows or may take one.
func (c *Core) windowFree(s *server, budget, since int64) bool {
	if c.maxRaised <= 0 || s.window || !s.Limited || budget <= s.LowUs || c.windows.owns(s.serial) > 0 {
		return true
	}
	return c.windows.most(since) < rt.PPM(c.maxRaised)
}

// put writes a budget that is not larger than the one in force.
func (c *Core) put(s *server, budget int64, set Setter) error {
	return c.putSince(s, budget, c.bandwidth.now, set)
}

// putSince writes a budget for a period released at since and takes it into the account.
func (c *Core) putSince(s *server, budget, since int64, set Setter) error {
	if budget != s.budget {
		if err := set.Set(s.Slot, budget); err != nil {
			c.refuse(s)
			return err
		}
	}
	s.tries, s.retryAt = 0, 0
	s.budget = budget
	c.granted(s, since)
	return nil
}

// refuse takes down a refusal: until when not to try again.
func (c *Core) refuse(s *server) {
	s.refused++
	s.retryAt = c.bandwidth.now + min(firstRetry<<min(s.tries, 16), lastRetry)
	s.tries++
}

// granted takes a new budget into the account, and asserts that the plan allows it.
func (c *Core) granted(s *server, since int64) {
	bandwidth, windows := c.bandwidth.sum, c.windows.sum
	c.account(s, since)
	if c.bandwidth.sum > bandwidth && c.bandwidth.most(since) > c.limit ||
		c.windows.sum > windows && c.maxRaised > 0 && c.windows.most(since) > rt.PPM(c.maxRaised) {
		c.broken++
	}
}

// account takes the budget in force into the accounts.
func (c *Core) account(s *server, since int64) {
	due := c.due(s, s.budget)
	if due > s.charged {
		c.bandwidth.add(s.serial, due-s.charged, since)
	} else {
		c.letGo(s, s.charged-due)
	}
	s.charged = due
	switch above := s.Limited && s.budget > s.LowUs; {
	case above && !s.window:
		c.windows.add(s.serial, 1, since)
		s.window = true
	case !above:
		c.leaveWindow(s)
	}
}

// letGo frees bandwidth of a server when the period under way is over.
func (c *Core) letGo(s *server, amount rt.PPM) {
	c.bandwidth.letGo(s.serial, amount, c.until(s))
}

func (c *Core) leaveWindow(s *server) {
	if s.window {
		c.windows.letGo(s.serial, 1, c.until(s))
		s.window = false
	}
}

// gone lets go of all that a server has that is no longer here. Whether it still ran is not known.
func (c *Core) gone(s *server) {
	until := s.deadline(c.bandwidth.now)
	c.bandwidth.letGo(s.serial, s.charged, until)
	if s.window {
		c.windows.letGo(s.serial, 1, until)
	}
}

// until is when nothing is promised any more of what is in force: at once when no period can be under way.
func (c *Core) until(s *server) int64 {
	now := c.bandwidth.now
	if seen, known := c.seen(s); known && seen+s.period <= now {
		return now
	}
	return s.deadline(now)
}

// seen is when the server last ran, or came when it never did.
func (c *Core) seen(s *server) (at int64, known bool) {
	if c.options.Seen == nil {
		return 0, false
	}
	return max(c.options.Seen(s.Slot), s.since), true
}
