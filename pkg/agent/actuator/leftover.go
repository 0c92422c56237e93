package actuator

import (
	"errors"
	"time"
)

// wornAfter is when a budget has made up for what was left over: the kernel takes it off at the end of the first window, which comes a window after
// the budget at the latest, and its timer is not exact.
const wornAfter = time.Duration(windowUs)*time.Microsecond + time.Second

// leftover is the most that a level may have used of a budget that was put back. Of a group without a budget the kernel
// takes nothing from that at the end of a period, however many pass, so the next budget begins with it: a small one that
// follows a large one would be used up before any task ran, and its level throttled for many periods.
type leftover struct {
	us int64
	// granted is what the level has of it beside what it needs: as much as there was room for.
	granted int64
	// until is when it is gone, as a budget has been in force for long enough that is larger by as much; 0: none yet.
	until int64
}

// uses notes that a server below these levels is open, or is not though its group was started with a budget. In a time t it uses (t/T + 2) Q + g at most (see demand.within): bursts are of that what
// does not grow with the time.
func (l *levels) uses(s Server) {
	for _, level := range above(s.Cgroup) {
		l.bursts[level] += 2*s.HighUs + overshootUs
	}
}

// putBackLevel gives a level the budget that it had before all servers, and keeps in mind what may have been used of the
// last one. That is nothing where room was made and no server was opened.
func (l *levels) putBackLevel(level string) error {
	defer delete(l.bursts, level)
	defer delete(l.since, level)
	if l.bursts[level] > 0 && l.bw.window() != 0 && l.original(level, 0).RuntimeUs == 0 {
		if held, err := l.budget(level, 0); err == nil && held.RuntimeUs > 0 {
			us := l.mayHaveUsed(level, held)
			l.leftovers[level] = leftover{us: us, granted: us}
		}
	}
	return l.release(level)
}

// mayHaveUsed is the most that is charged to a level when its budget is put back: what was left over before, and what
// its servers may have used since it has a budget. The kernel throttles the level when that is more than the budget, so
// it is not more by more than an overshoot. Since when the budget of a former process was there is not known.
func (l *levels) mayHaveUsed(level string, held Budget) int64 {
	rest := l.leftovers[level]
	most := max(held.RuntimeUs+overshootUs, rest.us)
	since, known := l.since[level]
	if !known {
		return most
	}
	elapsed := min((l.now()-since)/1000+1, held.PeriodUs)
	return min(most, rest.us+l.bursts[level]+(held.RuntimeUs-rest.granted)*elapsed/held.PeriodUs)
}

// beside calls write with what a level is to have beyond its need: all that may be left over, or as much of it as there is room for by now.
func (l *levels) beside(level string, write func() error) error {
	rest, ok := l.leftovers[level]
	if !ok {
		return write()
	}
	rest.granted = rest.us
	l.leftovers[level] = rest
	err := write()
	for errors.Is(err, ErrNoRoom) && rest.granted > 0 {
		rest.granted /= 2
		l.leftovers[level] = rest
		err = write()
	}
	if err == nil && rest.until == 0 {
		rest.until = l.now() + wornAfter.Nanoseconds()
		l.leftovers[level] = rest
	}
	return err
}

// worn forgets what is left over where a budget has made up for it, so that the level shrinks, or where the level has gone.
func (l *levels) worn() {
	for level, rest := range l.leftovers {
		switch {
		case rest.until == 0:
			if err := l.inLevel(level, func(target) error { return nil }); gone(err) {
				delete(l.leftovers, level)
			}
		case l.now() >= rest.until:
			delete(l.leftovers, level)
			l.due[level] = l.now()
		}
	}
}
