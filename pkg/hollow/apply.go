package hollow

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// apply makes the servers of a spec those of the node: it lets go of what the spec no longer asks for,
// refuses what would exceed a core, and puts the rest in force as soon as the bandwidth is free.
func (m *Machine) apply(wanted []v1alpha1.RTServer, now time.Time) {
	next := make(map[Key]*server, len(wanted))
	for _, spec := range wanted {
		next[keyOf(spec)] = m.serverFor(spec, now)
	}
	for k, s := range m.servers {
		if next[k] == nil {
			m.letGo(s, s.budget, now)
		}
	}
	m.servers, m.earlier = next, nil
	for _, core := range m.coreIDs() {
		m.decide(core)
	}
	m.settle(now)
}

// serverFor is the server of a spec: the one that is there, with the new spec, or a new one.
func (m *Machine) serverFor(spec v1alpha1.RTServer, now time.Time) *server {
	s := m.servers[keyOf(spec)]
	container, here := m.containers[keyOf(spec)]
	if s == nil {
		s = m.earlier[keyOf(spec)]
	}
	if s == nil {
		s = &server{}
	}
	if s.origin.IsZero() {
		s.origin = now // a container that is being created; its periods begin with its admission
	}
	if begun := !container.Base.IsZero(); begun && (s.script == nil || !s.script.origin.Equal(container.Base)) {
		s.script = podCursor(container.Script, spec.Container, container.Base, micros(spec.PeriodUs), m.since)
	}
	if s.budget > 0 && !s.keepsPlace(spec) {
		m.letGo(s, s.budget, now) // whether there is room for it is decided as for a newcomer
		s.budget, s.level = 0, 0
	}
	if s.budget > 0 && !here {
		m.letGo(s, s.budget, now)
		s.budget, s.level = 0, 0
	}
	s.spec, s.refusal, s.granted = spec, m.fault(spec, here), 0
	s.raised = min(s.raised, spec.BudgetHighUs)
	if s.refusal == "" {
		s.granted = m.want(s)
	}
	return s
}

// keepsPlace says that a new spec may change the budget in force, and nothing else about it.
func (s *server) keepsPlace(spec v1alpha1.RTServer) bool {
	return slices.Equal(spec.Cores, []int32{s.core}) && spec.PeriodUs == s.spec.PeriodUs && spec.DeadlineUs == s.spec.DeadlineUs
}

// fault is what makes a spec impossible on this node whatever else runs here; empty when nothing does.
func (m *Machine) fault(spec v1alpha1.RTServer, here bool) string {
	switch {
	case !here:
		return fmt.Sprintf("pod %s/%s has no container %q on this node", spec.Namespace, spec.Pod, spec.Container)
	case len(spec.Cores) != 1:
		return fmt.Sprintf("cores has %d entries; want one core", len(spec.Cores))
	case m.core(spec.Cores[0]) == nil:
		return fmt.Sprintf("core %d takes no real-time work; want one of %v", spec.Cores[0], m.coreIDs())
	case spec.BudgetLowUs > spec.BudgetHighUs || spec.BudgetHighUs > spec.PeriodUs:
		return fmt.Sprintf("budgets %d us and %d us in a period of %d us; want low <= high <= period", spec.BudgetLowUs, spec.BudgetHighUs, spec.PeriodUs)
	}
	return ""
}

// letGo takes a budget, or a part of one, from a server. It stays promised until the deadline.
func (m *Machine) letGo(s *server, budget int64, now time.Time) {
	if budget <= 0 {
		return
	}
	ppm := bandwidth(s.spec, s.budget, m.granularity) - bandwidth(s.spec, s.budget-budget, m.granularity)
	m.holds = append(m.holds, hold{core: s.core, ppm: ppm, until: s.deadline(now)})
	if s.inWindow() {
		m.freeAt[s.core] = maxTime(m.freeAt[s.core], s.deadline(now))
	}
}

// decide refuses what servers of a core ask for beyond what they have until the rest fits: what is in force
// stays, then the most critical come first. Bandwidth that is only held does not count here, it will be
// free.
func (m *Machine) decide(core int32) {
	limit, total := m.limit(core), rt.PPM(0)
	servers := m.on(core)
	for _, s := range servers {
		total += bandwidth(s.spec, min(s.budget, s.granted), m.granularity)
	}
	for _, s := range servers {
		has := bandwidth(s.spec, min(s.budget, s.granted), m.granularity)
		need := bandwidth(s.spec, s.granted, m.granularity)
		if rest := total - has; need > has && rest+need > limit {
			s.refusal = fmt.Sprintf("core %d: a budget of %d us needs %d ppm, %d of %d ppm are promised", core, s.granted, need, rest, limit)
			s.granted = m.lesser(s, limit-rest)
			need = bandwidth(s.spec, s.granted, m.granularity)
		}
		total += need - has
	}
}

// lesser is what a server gets that cannot have what it wants: what it has, or its low budget where there is room.
func (m *Machine) lesser(s *server, room rt.PPM) int64 {
	if s.budget > 0 {
		return s.budget
	}
	if bandwidth(s.spec, s.spec.BudgetLowUs, m.granularity) <= room {
		return s.spec.BudgetLowUs
	}
	return 0
}

// on are the servers that may have a budget on a core, those in force first, then the most critical.
func (m *Machine) on(core int32) []*server {
	var all []*server
	for _, k := range slices.SortedFunc(maps.Keys(m.servers), Key.compare) {
		if s := m.servers[k]; s.granted > 0 && s.spec.Cores[0] == core {
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b *server) int {
		return cmp.Or(compareBool(b.budget > 0, a.budget > 0), cmp.Compare(criticality(b), criticality(a)))
	})
	return all
}

// settle puts in force what has room now: first what takes less, then what takes more.
func (m *Machine) settle(now time.Time) {
	m.holds = slices.DeleteFunc(m.holds, func(h hold) bool { return !h.until.After(now) })
	if m.Silent() {
		return
	}
	for _, core := range m.coreIDs() {
		servers := m.on(core)
		for _, s := range servers {
			if target := m.target(s); s.budget > target {
				m.letGo(s, s.budget-target, now)
				m.force(s, target)
			}
		}
		for _, s := range servers {
			m.grow(s)
		}
		for _, s := range servers {
			if s.wants {
				m.raise(s, now)
			}
		}
	}
	m.pressEach(now)
}

// grow gives a server its budget if the core has room at this moment.
func (m *Machine) grow(s *server) {
	target := m.target(s)
	core := s.spec.Cores[0]
	more := bandwidth(s.spec, target, m.granularity) - bandwidth(s.spec, s.budget, m.granularity)
	s.waits = s.budget < target && m.promised(core)+more > m.limit(core)
	if s.waits {
		return
	}
	if s.budget == 0 {
		s.core = core
	}
	m.force(s, target)
}

// force writes a budget into the kernel.
func (m *Machine) force(s *server, budget int64) {
	s.budget, s.level = budget, min(budget, max(s.spec.Budget(s.spec.Level), s.raised))
}

// target is the budget that a server should have now.
func (m *Machine) target(s *server) int64 {
	if s.refusal != "" {
		return s.granted
	}
	return m.want(s)
}

// want is the budget that a server asks for: that of its level, the agent's own raise, or in mode
// Reserved the one that is paid for already.
func (m *Machine) want(s *server) int64 {
	budget := max(s.spec.Budget(s.spec.Level), s.raised)
	if s.spec.Mode == reservedMode && !s.spec.Limited {
		budget = max(budget, m.raisableTo(s))
	}
	return budget
}

// reservedMode is the value of RTServer.mode that gives the kernel the high budget from the start.
const reservedMode = "Reserved"

// promised is what the budgets on a core add up to now, those included that are held until a deadline.
func (m *Machine) promised(core int32) rt.PPM {
	total := rt.PPM(0)
	for _, s := range m.servers {
		if s.core == core {
			total += bandwidth(s.spec, s.budget, m.granularity)
		}
	}
	for _, h := range m.holds {
		if h.core == core {
			total += h.ppm
		}
	}
	return total
}

// limit is what budgets on a core may add up to: its capacity, with the escalation reserve where a plan
// was proven with it.
func (m *Machine) limit(core int32) rt.PPM {
	c := m.core(core)
	if c == nil {
		return 0
	}
	plan, planned := m.plans[core]
	if !planned || plan.ThresholdPpm == 0 {
		return c.Capacity
	}
	return min(rt.PPM(plan.ThresholdPpm), c.Capacity+c.EscalationReserve)
}

func (m *Machine) core(id int32) *rt.Core {
	for i := range m.cores {
		if int32(m.cores[i].ID) == id {
			return &m.cores[i]
		}
	}
	return nil
}

func (m *Machine) coreIDs() []int32 {
	ids := make([]int32, len(m.cores))
	for i, c := range m.cores {
		ids[i] = int32(c.ID)
	}
	return ids
}

// criticality of a server; what is none counts as the lowest.
func criticality(s *server) rt.Criticality {
	c, err := rt.ParseCriticality(s.spec.Criticality)
	if err != nil {
		return rt.Low
	}
	return c
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
