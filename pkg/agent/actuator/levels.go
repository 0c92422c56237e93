package actuator

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
)

// levels keeps the groups above containers large enough. What each needs follows from the open servers and from what groups
// of others hold below it, so that nothing needs to be remembered but the journal.
type levels struct {
	*machine
	bw bandwidth
	// servers that are open, by path.
	servers map[string]Server
	// unopened are groups of the table that are not open.
	unopened []string
	// due is when a level may shrink, by its path.
	due map[string]int64
	// since is when a level was given its budget by this process, bursts are of the servers that were open below it since; leftovers are of levels
	// that were put back.
	since, bursts map[string]int64
	leftovers     map[string]leftover
	// settleAt is when the levels are looked at again though nothing changed.
	settleAt int64
	index    map[string]bool // of sized, while settle runs
}

func newLevels(m *machine, bw bandwidth) *levels {
	return &levels{machine: m, bw: bw, servers: map[string]Server{}, due: map[string]int64{},
		since: map[string]int64{}, bursts: map[string]int64{}, leftovers: map[string]leftover{}}
}

// ours are the servers and rooms within a group.
func (l *levels) ours(level string) map[string]Server {
	out := map[string]Server{}
	for group, r := range l.rooms {
		if below(group, level) && !r.void {
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

// sized are the levels that we size: those above servers, rooms and spared groups, and those above groups that the
// journal has from a former process and to which the table has still to come.
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
	for _, group := range l.spares("") {
		add(group)
	}
	for _, r := range l.journal.records {
		add(r.Group)
	}
	return out
}

// need is the least runtime of a level with a period, on a core: what its servers and the budgets of
// others below it may use, beside what is left over of a former budget, and no less than it had before it was first changed.
func (l *levels) need(level string, core int, periodUs int64) (int64, error) {
	sum, err := l.asked(level, core, periodUs)
	if err != nil {
		return 0, err
	}
	foreign, err := l.foreign(level, core, l.sized())
	if err != nil {
		return 0, err
	}
	for _, b := range foreign {
		sum += l.bw.share(demand{b.RuntimeUs, b.PeriodUs}, periodUs)
	}
	return max(sum+l.leftovers[level].granted, l.original(level, core).RuntimeUs), nil
}

// asked is what our servers and rooms within a level need of a period, and the groups that are spared there.
func (l *levels) asked(level string, core int, periodUs int64) (sum int64, err error) {
	for _, s := range l.ours(level) {
		if !l.bw.perCore() || s.Core == core {
			sum += l.bw.share(demand{s.HighUs, s.PeriodUs}, periodUs)
		}
	}
	for _, group := range l.spares(level) {
		b, err := l.inForce(group, core)
		if err != nil {
			return 0, err
		}
		if b.RuntimeUs > 0 {
			sum += l.bw.share(demand{b.RuntimeUs, b.PeriodUs}, periodUs)
		}
	}
	return sum, nil
}

// taken is what is taken of the pot, as a runtime in a period: of groups that are not ours their ratio, because the root
// throttles nothing for them.
func (l *levels) taken(core int, periodUs int64) (int64, error) {
	sum, err := l.asked("", core, periodUs)
	if err != nil {
		return 0, err
	}
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
	if r, expected := l.rooms[child]; expected && !r.void {
		return nil, nil
	}
	if slices.Contains(l.unopened, child) {
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
		return l.beside(level, func() error {
			held, want, err := l.wanted(t, level, core)
			if err != nil || held == want {
				return err
			}
			if held.RuntimeUs == 0 {
				l.since[level] = l.now()
			}
			return l.bw.write(l.machine, t, core, want)
		})
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
