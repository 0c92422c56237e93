package pressure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// percent in millionths.
const percent = 10_000

// Source is where the figures come from: a host.Host.
type Source interface {
	CPUTimes() ([]host.CPUTime, error)
	PSI(resource, group string) (host.PSI, error)
}

// State is how busy the node is. Before two samples there are no figures: Known is false.
type State struct {
	// At is when it was measured, over the time since the sample before.
	At    time.Time `json:"at"`
	Known bool      `json:"known"`
	// Percent is the utilisation of all CPUs that were online throughout, 0 to 100.
	Percent int32 `json:"percent"`
	// Cores that were online throughout, by number.
	Cores []Core `json:"cores,omitempty"`
	// Over is for how long the utilisation has been at or above the rule's; 0 while it is not.
	Over time.Duration `json:"overNs"`
	// Busy by the rule, since BusySince; that is zero while it is not.
	Busy      bool      `json:"busy"`
	BusySince time.Time `json:"busySince,omitzero"`
	// PSI is the pressure on the CPU; nil where the kernel has none.
	PSI *host.PSI `json:"psi,omitempty"`
}

// Core is a CPU and its utilisation, 0 to 100.
type Core struct {
	ID      int   `json:"id"`
	Percent int32 `json:"percent"`
}

// Monitor samples a node. It is not safe for concurrent use.
type Monitor struct {
	source  Source
	rule    Rule
	clock   clock.WithTicker
	at      time.Time
	last    map[int]host.CPUTime
	verdict verdict
	state   State
}

// New is a monitor of a node. The first sample only says where counting begins.
func New(source Source, rule Rule, clk clock.WithTicker) (*Monitor, error) {
	if err := rule.Validate(); err != nil {
		return nil, fmt.Errorf("pressure rule: %w", err)
	}
	return &Monitor{source: source, rule: rule, clock: clk}, nil
}

// Sample measures what the CPUs did since the sample before. A CPU that came, or whose counters began again,
// has no figure until the next sample; one that went has none. When nothing can be said of the
// time, as when no tick has passed, the state is the one before and the next sample covers both.
func (m *Monitor) Sample() (State, error) {
	times, err := m.source.CPUTimes()
	if err != nil {
		return m.state, fmt.Errorf("sampling pressure: %w", err)
	}
	now := m.clock.Now()
	stall, err := m.stall()
	if err != nil {
		return m.state, fmt.Errorf("sampling pressure: %w", err)
	}
	used, cores, waits := m.compare(times)
	m.state.PSI = stall
	if waits {
		return m.state, nil
	}
	if len(cores) > 0 && now.After(m.at) {
		m.verdict = m.verdict.judge(m.rule, used, m.at, now)
		m.state = m.describe(now, used, cores, stall)
	} else {
		// Nothing is known of this time, so it counts for neither side.
		m.verdict.overSince, m.verdict.calmSince, m.state.Over = time.Time{}, time.Time{}, 0
	}
	m.remember(times, now)
	return m.state, nil
}

// stall is the pressure on the CPU; nil without PSI.
func (m *Monitor) stall() (*host.PSI, error) {
	psi, err := m.source.PSI("cpu", "")
	if errors.Is(err, host.ErrUnsupported) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &psi, nil
}

// compare gives the utilisation of all CPUs, in millionths, and of each, since the sample before. It waits
// when CPUs are known and none has counted a tick.
func (m *Monitor) compare(times []host.CPUTime) (used int64, cores []Core, waits bool) {
	var busy, total uint64
	for _, t := range times {
		before, known := m.last[t.CPU]
		if !known || restarted(before, t) {
			continue
		}
		b, all := passed(before, t)
		if all == 0 {
			waits = true
			continue
		}
		busy, total = busy+b, total+all
		cores = append(cores, Core{ID: t.CPU, Percent: rounded(share(b, all))})
	}
	return share(busy, total), cores, waits && len(cores) == 0
}

// slack is how far, in ticks, the kernel may take idle time back when it corrects it.
const slack = 100

// restarted says that a CPU's counters began again.
func restarted(before, now host.CPUTime) bool {
	return now.Busy() < before.Busy() || now.Rest()+slack < before.Rest()
}

// passed is the time that a CPU could not be used in, and all the time. What the hypervisor took could not be
// used either.
func passed(before, now host.CPUTime) (busy, all uint64) {
	busy = now.Busy() - before.Busy() + ahead(before.Stolen, now.Stolen)
	return busy, busy + ahead(before.Rest(), now.Rest())
}

// ahead is how far a counter went, 0 when it stepped back.
func ahead(before, now uint64) uint64 {
	if now < before {
		return 0
	}
	return now - before
}

// share in millionths; all of it where counters that wrapped around make a part larger than the whole.
func share(part, all uint64) int64 {
	if all == 0 {
		return 0
	}
	return int64(min(1, float64(part)/float64(all)) * 100 * percent)
}

func rounded(millionths int64) int32 { return int32((millionths + percent/2) / percent) }

func (m *Monitor) describe(now time.Time, used int64, cores []Core, stall *host.PSI) State {
	s := State{At: now, Known: true, Percent: rounded(used), Cores: cores, PSI: stall,
		Busy: m.verdict.busy, BusySince: m.verdict.busySince}
	if !m.verdict.overSince.IsZero() {
		s.Over = now.Sub(m.verdict.overSince)
	}
	return s
}

func (m *Monitor) remember(times []host.CPUTime, now time.Time) {
	m.at, m.last = now, make(map[int]host.CPUTime, len(times))
	for _, t := range times {
		m.last[t.CPU] = t
	}
}

// Run samples until the context ends and gives every result to publish, at once and then so often.
func (m *Monitor) Run(ctx context.Context, every time.Duration, publish func(State, error)) {
	ticker := m.clock.NewTicker(every)
	defer ticker.Stop()
	for {
		publish(m.Sample())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}
