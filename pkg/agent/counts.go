package agent

import "github.com/mainspring-rt/mainspring/pkg/agent/table"

// Counts of a server.
type Counts struct {
	Overruns, Throttles, Misses, Jobs uint64
	Raises, Partial, Denied, Refused  uint64
	Squeezes, Recoveries, Drift       uint64
}

func countsOf(s table.ServerReport) Counts {
	return Counts{
		Overruns: s.Overruns, Throttles: s.Throttles, Misses: s.Misses, Jobs: s.Jobs,
		Raises: s.Raises, Partial: s.Partial, Denied: s.Denied, Refused: s.Refused,
		Squeezes: s.Squeezes, Recoveries: s.Recoveries, Drift: s.Drift,
	}
}

// each calls f with every count of three.
func each(a, b, c *Counts, f func(a, b, c *uint64)) {
	f(&a.Overruns, &b.Overruns, &c.Overruns)
	f(&a.Throttles, &b.Throttles, &c.Throttles)
	f(&a.Misses, &b.Misses, &c.Misses)
	f(&a.Jobs, &b.Jobs, &c.Jobs)
	f(&a.Raises, &b.Raises, &c.Raises)
	f(&a.Partial, &b.Partial, &c.Partial)
	f(&a.Denied, &b.Denied, &c.Denied)
	f(&a.Refused, &b.Refused, &c.Refused)
	f(&a.Squeezes, &b.Squeezes, &c.Squeezes)
	f(&a.Recoveries, &b.Recoveries, &c.Recoveries)
	f(&a.Drift, &b.Drift, &c.Drift)
}

// Since is how much was counted after an earlier look.
func (c Counts) Since(earlier Counts) Counts {
	var out Counts
	each(&out, &c, &earlier, func(out, now, before *uint64) { *out = *now - min(*before, *now) })
	return out
}

func (c Counts) plus(other Counts) Counts {
	var out Counts
	each(&out, &c, &other, func(out, a, b *uint64) { *out = *a + *b })
	return out
}

// counter goes on where the counter that it follows begins again.
type counter struct {
	Total uint64 `json:"total"`
	Last  uint64 `json:"last"`
}

func (c *counter) follow(raw uint64, restarted bool) {
	step(&c.Total, raw, c.Last, restarted)
	c.Last = raw
}

// step adds what a counter has counted since it was last looked at. One that is less than it was began again.
func step(total *uint64, raw, last uint64, restarted bool) {
	if !restarted && raw >= last {
		raw -= last
	}
	*total += raw
}

// follow adds what a server's counters have counted.
func (e *entry) follow(raw Counts, restarted bool) {
	each(&e.Total, &raw, &e.Last, func(total, raw, last *uint64) { step(total, *raw, *last, restarted) })
	e.Last = raw
}

// follow adds what a histogram has counted.
func (h *histogram) follow(raw table.Histogram, restarted bool) {
	restarted = restarted || raw.SumUs < h.Last.SumUs
	for i := range raw.Count {
		step(&h.Total.Count[i], raw.Count[i], h.Last.Count[i], restarted)
	}
	sum := uint64(h.Total.SumUs)
	step(&sum, uint64(max(raw.SumUs, 0)), uint64(max(h.Last.SumUs, 0)), restarted)
	h.Total.SumUs, h.Total.MaxUs = int64(sum), max(h.Total.MaxUs, raw.MaxUs)
	h.Last = raw
}

// histogram goes on where the one that it follows begins again.
type histogram struct {
	Total table.Histogram `json:"total"`
	Last  table.Histogram `json:"last"`
}
