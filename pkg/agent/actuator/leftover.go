package actuator

import "errors"

// leftover is the most that a level may have used of a budget that was put back. Of a group without a budget the kernel
// takes nothing from that at the end of a period, however many pass, so the next budget begins with it: a small one that
// follows a large one would be used up before anybody ran, and its level throttled for many periods.
type leftover struct {
	us int64
	// until is when it is gone, as a budget has been in force for long enough that is larger by as much; 0: none yet.
	until int64
}

// uses notes that a server below these levels is open.
func (l *levels) uses(group string) {
	for _, level := range above(group) {
		l.used[level] = true
	}
}

// putBackLevel gives a level the budget that it had before all servers, and keeps in mind what may have been used of the last one. That is
// nothing where room was made and nobody came.
func (l *levels) putBackLevel(level string) error {
	used := l.used[level]
	delete(l.used, level)
	if used && l.bw.window() != 0 && l.original(level, 0).RuntimeUs == 0 {
		if held, err := l.budget(level, 0); err == nil && held.RuntimeUs > 0 {
			l.leftovers[level] = leftover{us: held.RuntimeUs + overshootUs}
		}
	}
	return l.release(level)
}

// beside calls write with what a level is to have beyond its need: all that may be left over, or as much of it as there is room for.
func (l *levels) beside(level string, write func() error) error {
	rest, ok := l.leftovers[level]
	if !ok {
		return write()
	}
	err := write()
	for errors.Is(err, ErrNoRoom) && rest.us > 0 {
		rest.us /= 2
		l.leftovers[level] = rest
		err = write()
	}
	if err == nil && rest.until == 0 {
		rest.until = l.now() + settleAfter.Nanoseconds()
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
