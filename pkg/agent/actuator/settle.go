package actuator

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"
)

// settleEvery bounds how long it takes until a level that something else changed is set right: reading
// them all costs tens of microseconds each.
const settleEvery = 30 * time.Second

// settleAfter is two windows: see settle.
const settleAfter = 2 * time.Duration(windowUs) * time.Microsecond

// settle puts back, grows or shrinks the levels that the journal has, the deepest first. A level that other servers
// remain in is shrunk only two windows after one left: what that one used in the window under way is
// charged to the level, which could be throttled for the others if it became smaller at once.
func (l *levels) settle() (did []string, err error) {
	l.index = l.sized() // once for all levels; what is put back meanwhile only has it look further
	defer func() { l.index = nil }()
	l.worn()
	var faults []error
	for _, level := range l.journal.groups() {
		if _, open := l.servers[level]; open {
			continue
		}
		if _, expected := l.rooms[level]; expected {
			continue
		}
		note, err := l.settleLevel(level)
		if err != nil && !gone(err) {
			faults = append(faults, fmt.Errorf("settling %s: %w", level, err))
		}
		if note != "" {
			did = append(did, note)
		}
	}
	l.settleAt = l.now() + settleEvery.Nanoseconds()
	for _, due := range l.due {
		l.settleAt = min(l.settleAt, due)
	}
	for _, rest := range l.leftovers {
		if rest.until > 0 {
			l.settleAt = min(l.settleAt, rest.until)
		}
	}
	if len(faults) > 0 || len(l.making) > 0 {
		l.settleAt = l.now()
	}
	return did, errors.Join(faults...)
}

func (l *levels) settleLevel(level string) (string, error) {
	ours, spares := l.ours(level), l.spares(level)
	switch {
	case l.spared(level):
		return "", nil
	case len(ours) == 0 && len(spares) == 0:
		delete(l.due, level)
		return "put back " + level, l.putBackLevel(level)
	}
	if err := l.regrow(level, l.coresOf(ours, spares)); err != nil {
		return "", err
	}
	surplus, err := l.surplus(level)
	if err != nil || len(surplus) == 0 {
		delete(l.due, level)
		return "", err
	}
	if _, ok := l.due[level]; !ok {
		l.due[level] = l.now() + settleAfter.Nanoseconds()
	}
	if l.now() < l.due[level] {
		return "", nil
	}
	delete(l.due, level)
	for core, b := range surplus {
		err = errors.Join(err, l.inLevel(level, func(t target) error { return l.bw.write(l.machine, t, core, b) }))
	}
	return "shrank " + level, err
}

// regrow makes a level large enough again that something else made smaller, as it may have made those above, which come later.
func (l *levels) regrow(level string, cores []int) error {
	for _, core := range cores {
		err := l.growLevel(level, core)
		if errors.Is(err, ErrNoRoom) {
			err = l.grow(path.Join(level, "any"), core)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// coresOf are the cores on which a level has to be looked at for those within it.
func (l *levels) coresOf(ours map[string]Server, spares []string) []int {
	if !l.bw.perCore() {
		return []int{0}
	}
	if len(spares) > 0 {
		return l.cores
	}
	cores := map[int]bool{}
	for _, s := range ours {
		cores[s.Core] = true
	}
	return slices.Sorted(maps.Keys(cores))
}

// surplus is what a level should have on the cores on which it has more.
func (l *levels) surplus(level string) (map[int]Budget, error) {
	cores := []int{0}
	if l.bw.perCore() {
		cores = l.cores
	}
	out := map[int]Budget{}
	for _, core := range cores {
		held, err := l.budget(level, core)
		if err != nil {
			return nil, err
		}
		if !l.bw.managed(held) {
			continue
		}
		need, err := l.need(level, core, held.PeriodUs)
		if err != nil {
			return nil, err
		}
		if need < held.RuntimeUs {
			out[core] = Budget{need, held.PeriodUs}
		}
	}
	return out, nil
}

// left notes that a server left its levels.
func (l *levels) left(group string) {
	l.settleAt = l.now()
	for _, level := range above(group) {
		delete(l.due, level)
	}
}

// retreat has the next Sweep shrink what was grown for a server that did not come to be: none of its time was used. Nothing is put
// back before that: after a restart the table may not have reached every group yet.
func (l *levels) retreat(group string) {
	l.settleAt = l.now()
	for _, level := range above(group) {
		l.due[level] = l.now()
	}
}

// releaseUp puts a group back, and the levels above it that nothing else needs.
func (l *levels) releaseUp(group string) error {
	err := l.release(group)
	for _, level := range slices.Backward(above(group)) {
		if len(l.ours(level)) > 0 || len(l.spares(level)) > 0 || l.journaledBelow(level) {
			break
		}
		err = errors.Join(err, l.putBackLevel(level))
	}
	return err
}
