package actuator

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"
)

// levels keeps the groups above containers large enough. What each needs follows from the open servers and from what groups
// of others hold below it, so that nothing needs to be remembered but the journal.
type levels struct {
	*machine
	bw bandwidth
	// servers that are open, by path.
	servers map[string]Server
	// due is when a level may shrink, by its path.
	due map[string]int64
	// settleAt is when the levels are looked at again though nothing changed.
	settleAt int64
	index    map[string]bool // of sized, while settle runs
}

// settleEvery bounds how long it takes until a level that something else changed is set right: reading
// them all costs tens of microseconds each.
const settleEvery = 30 * time.Second

// settleAfter is two windows: see settle.
const settleAfter = 2 * time.Duration(windowUs) * time.Microsecond

func newLevels(m *machine, bw bandwidth) *levels {
	return &levels{machine: m, bw: bw, servers: map[string]Server{}, due: map[string]int64{}}
}

// ours are the servers and rooms within a group.
func (l *levels) ours(level string) map[string]Server {
	out := map[string]Server{}
	for group, r := range l.rooms {
		if below(group, level) {
			out[group] = r.Server
		}
	}
	for group, s := range l.servers {
		if below(group, level) {
			out[group] = s
		}
	}
	return out
}

// sized are the levels that we size: those above servers and rooms, and those of groups that the journal has from a
// former process, whose turn in the table is still to come.
func (l *levels) sized() map[string]bool {
	if l.index != nil {
		return l.index
	}
	out := map[string]bool{}
	add := func(group string) {
		for dir := path.Dir(group); dir != "/" && !out[dir]; dir = path.Dir(dir) {
			out[dir] = true
		}
	}
	for group := range l.rooms {
		add(group)
	}
	for group := range l.servers {
		add(group)
	}
	for _, r := range l.journal.records {
		add(r.Group)
	}
	return out
}

// need is the least runtime of a level with a period, on a core: what its servers and the budgets of
// others below it may use, and no less than it had before it was first changed.
func (l *levels) need(level string, core int, periodUs int64) (int64, error) {
	sum := l.asked(level, core, periodUs)
	foreign, err := l.foreign(level, core, l.sized())
	if err != nil {
		return 0, err
	}
	for _, b := range foreign {
		sum += l.bw.share(demand{b.RuntimeUs, b.PeriodUs}, periodUs)
	}
	return max(sum, l.original(level, core).RuntimeUs), nil
}

// asked is what our servers and rooms within a level need of a period.
func (l *levels) asked(level string, core int, periodUs int64) (sum int64) {
	for _, s := range l.ours(level) {
		if !l.bw.perCore() || s.Core == core {
			sum += l.bw.share(demand{s.HighUs, s.PeriodUs}, periodUs)
		}
	}
	return sum
}

// taken is what is taken of the pot, as a runtime in a period: of groups that are not ours their ratio, because the root
// throttles nothing for them.
func (l *levels) taken(core int, periodUs int64) (int64, error) {
	sum := l.asked("", core, periodUs)
	foreign, err := l.foreign("/", core, l.sized())
	for _, b := range foreign {
		sum += ratioShare(demand{b.RuntimeUs, b.PeriodUs}, periodUs)
	}
	return sum, err
}

// foreign are the budgets of groups below a level that are not ours: of levels that we size those of what is below
// them.
func (l *levels) foreign(level string, core int, sized map[string]bool) ([]Budget, error) {
	dir, err := l.cg.Dir(l.bw.controller(), level)
	if err != nil {
		return nil, asGone(err)
	}
	names, err := l.kernel.children(dir)
	if err != nil {
		return nil, fmt.Errorf("listing the groups of %s: %w", level, asGone(err))
	}
	var out []Budget
	for _, name := range names {
		child := path.Join(level, name)
		found, err := l.foreignIn(child, core, sized)
		if err != nil && !gone(err) {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

func (l *levels) foreignIn(child string, core int, sized map[string]bool) ([]Budget, error) {
	if _, open := l.servers[child]; open {
		return nil, nil
	}
	if _, expected := l.rooms[child]; expected {
		return nil, nil
	}
	if sized[child] {
		return l.foreign(child, core, sized)
	}
	b, err := l.budget(child, core)
	if err != nil || b.RuntimeUs <= 0 || b.PeriodUs <= 0 {
		return nil, err
	}
	return []Budget{b}, nil
}

// budget of a group as the kernel has it.
func (l *levels) budget(group string, core int) (b Budget, err error) {
	err = l.in(l.bw.controller(), group, func(f files) error {
		b, err = l.bw.parse(f.read, core)
		return asGone(err)
	})
	return b, err
}

// original is the budget that a group had before it was first changed; zero when it never was.
func (l *levels) original(group string, core int) Budget {
	b, err := l.bw.parse(func(name string) (string, error) {
		text, ok := l.journal.before(group, name)
		if !ok {
			return "", fs.ErrNotExist
		}
		return text, nil
	}, core)
	if err != nil {
		return Budget{}
	}
	return b
}

// grow makes every level above a group large enough for all that is below it: the highest first, because a
// group may not have more than the one above it. It never shrinks one: after a restart the servers
// of the table come one by one, and those that did not come yet have their room still.
func (l *levels) grow(group string, core int) error {
	levels := above(group)
	for i, level := range levels {
		err := l.growLevel(level, core)
		if errors.Is(err, ErrNoRoom) && i > 0 {
			err = errors.Join(l.growBy(levels[:i], level, core), l.growLevel(level, core))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// wanted is what a level has on a core, and what it should have.
func (l *levels) wanted(f files, level string, core int) (held, want Budget, err error) {
	held, err = l.bw.parse(f.read, core)
	if err != nil || !l.bw.managed(held) {
		return held, held, asGone(err)
	}
	want.PeriodUs = held.PeriodUs
	if held.RuntimeUs == 0 && l.bw.window() != 0 {
		want.PeriodUs = l.bw.window()
	}
	want.RuntimeUs, err = l.need(level, core, want.PeriodUs)
	want.RuntimeUs = max(want.RuntimeUs, held.RuntimeUs)
	return held, want, err
}

func (l *levels) growLevel(level string, core int) error {
	return l.inLevel(level, func(t target) error {
		held, want, err := l.wanted(t, level, core)
		if err != nil || held == want {
			return err
		}
		return l.bw.write(l.machine, t, core, want)
	})
}

// growBy gives the levels above one as much more as that one lacks. What they need of themselves they have; but levels
// beside this one, whose servers are still to be opened after a restart, may hold more than those need.
func (l *levels) growBy(levels []string, lacking string, core int) error {
	var lack Budget
	err := l.inLevel(lacking, func(t target) error {
		held, want, err := l.wanted(t, lacking, core)
		lack = Budget{want.RuntimeUs - ratioShare(demand{held.RuntimeUs, max(1, held.PeriodUs)}, want.PeriodUs), want.PeriodUs}
		return err
	})
	for _, level := range levels {
		if err != nil {
			return err
		}
		err = l.inLevel(level, func(t target) error {
			held, err := l.bw.parse(t.read, core)
			if err != nil || !l.bw.managed(held) {
				return asGone(err)
			}
			held.RuntimeUs += ratioShare(demand{lack.RuntimeUs, lack.PeriodUs}, held.PeriodUs) + 1
			return l.bw.write(l.machine, t, core, held)
		})
	}
	return err
}

func (l *levels) inLevel(level string, do func(target) error) error {
	return l.in(l.bw.controller(), level, func(f files) error { return do(target{l.bw.controller(), level, f}) })
}

// settle puts back, grows or shrinks the levels that the journal has, the deepest first. A level that other servers
// remain in is shrunk only two windows after one left: what that one used in the window under way is
// charged to the level, which could be throttled for the others if it became smaller at once.
func (l *levels) settle() (did []string, err error) {
	l.index = l.sized() // once for all levels; what is put back meanwhile only has it look further
	defer func() { l.index = nil }()
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
	if len(faults) > 0 {
		l.settleAt = l.now()
	}
	return did, errors.Join(faults...)
}

func (l *levels) settleLevel(level string) (string, error) {
	ours := l.ours(level)
	if len(ours) == 0 && l.spared(level) {
		return "", nil
	}
	if len(ours) == 0 {
		delete(l.due, level)
		return "put back " + level, l.release(level)
	}
	if err := l.regrow(level, ours); err != nil {
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

// regrow makes a level large enough again that something else made smaller.
func (l *levels) regrow(level string, ours map[string]Server) error {
	cores := map[int]bool{}
	for _, s := range ours {
		cores[s.Core] = true
	}
	for core := range cores {
		if err := l.growLevel(level, core); err != nil {
			return err
		}
		if !l.bw.perCore() {
			break
		}
	}
	return nil
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
		if len(l.ours(level)) > 0 || l.journaledBelow(level) {
			break
		}
		err = errors.Join(err, l.release(level))
	}
	return err
}
