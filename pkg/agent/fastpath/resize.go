package fastpath

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// resize has groups that stay open follow their servers' new budgets: those first whose largest shrinks, so that there is room for the others. A raise
// goes on, and so does whatever is known of the server.
func (e *Engine) resize() {
	var other []*entry
	for _, en := range e.entries {
		if en.group == nil {
			continue
		}
		config, largest := e.Programs.Config(en.slot), e.most(en.spec)
		atomic.StoreUint64(&config.CleanNs, cleanNs(en.spec))
		atomic.StoreUint64(&config.WholeNs, uint64(largest)*1000)
		if largest != en.sized {
			other = append(other, en)
		}
	}
	slices.SortFunc(other, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(e.most(a.spec)-a.sized, e.most(b.spec)-b.sized), cmp.Compare(a.spec.ID, b.spec.ID))
	})
	for _, en := range other {
		group, ok := en.group.(actuator.Resizable)
		if !ok {
			e.reopen(en, en.spec)
		} else if group.Resize(e.most(en.spec)) == nil { // else the next sweep tries again
			en.sized = e.most(en.spec)
		}
	}
}

// reopen lets go of a group that has to be opened anew, and keeps in mind what it had by the former entry of the table.
func (e *Engine) reopen(en *entry, former table.Server) {
	if held, _, err := en.group.Read(); err == nil {
		en.had = share{budgetUs: held.RuntimeUs, windowUs: windowOf(former)}
	}
	e.detach(en)
	e.close(en, false)
}

// share of a core that a server had: a budget within a window.
type share struct{ budgetUs, windowUs int64 }

// of is the same share in the window of an entry; 0 when it is not known.
func (s share) of(spec table.Server) int64 {
	if s.windowUs == 0 {
		return 0
	}
	return s.budgetUs * windowOf(spec) / s.windowUs
}

// windowOf is the time within which a budget is owed.
func windowOf(s table.Server) int64 {
	known, err := s.RT()
	if err != nil {
		return s.PeriodUs
	}
	return known.Window()
}
