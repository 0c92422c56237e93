package observe

import (
	"slices"
	"time"
)

// Sample is one point of the time series.
type Sample struct {
	At       time.Time
	Nodes    map[string]int // by pool
	Starting int
	Leaving  int
	Pending  int
	Running  int
	Price    float64 // $/h
	Idle     float64 // $/h of nodes without a pod
	Watts    float64
	CPU      Amount
	GPU      Amount
}

// SampleOf reduces a state to one point.
func SampleOf(s State) Sample {
	nodes := map[string]int{}
	for _, n := range s.Nodes {
		nodes[n.Pool]++
	}
	return Sample{
		At: s.At, Nodes: nodes, Starting: s.InPhase(Starting), Leaving: s.InPhase(Leaving),
		Pending: s.Pending, Running: s.Running, Price: s.Price(), Idle: s.idlePrice(), Watts: s.Watts(), CPU: s.CPU(), GPU: s.GPU(),
	}
}

// Count is the number of nodes of all pools.
func (s Sample) Count() int {
	count := 0
	for _, n := range s.Nodes {
		count += n
	}
	return count
}

// Series is samples in the order of time.
type Series []Sample

// Between are the samples in [from, to].
func (s Series) Between(from, to time.Time) Series {
	var part Series
	for _, sample := range s {
		if !sample.At.Before(from) && !sample.At.After(to) {
			part = append(part, sample)
		}
	}
	return part
}

// Pools are the names of all pools that ever had a node, sorted.
func (s Series) Pools() []string {
	var names []string
	for _, sample := range s {
		for name := range sample.Nodes {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Span is the time from the first to the last sample.
func (s Series) Span() time.Duration {
	if len(s) == 0 {
		return 0
	}
	return s[len(s)-1].At.Sub(s[0].At)
}

// Hours integrates a value over the series: each sample's value holds until the next sample. The result is in the
// value's unit times hours.
func (s Series) Hours(of func(Sample) float64) float64 {
	var area float64
	for i := 1; i < len(s); i++ {
		area += of(s[i-1]) * s[i].At.Sub(s[i-1].At).Hours()
	}
	return area
}

// Dollars is the cost of the series.
func (s Series) Dollars() float64 { return s.Hours(func(p Sample) float64 { return p.Price }) }

// KWh is the modelled energy of the series.
func (s Series) KWh() float64 { return s.Hours(func(p Sample) float64 { return p.Watts }) / 1000 }

// NodeHours is the number of nodes integrated over the series.
func (s Series) NodeHours() float64 {
	return s.Hours(func(p Sample) float64 { return float64(p.Count()) })
}

// Utilisation is requested over available, both integrated over the series; 0 when nothing was available.
func (s Series) Utilisation(of func(Sample) Amount) float64 {
	return Amount{
		Requested: s.Hours(func(p Sample) float64 { return of(p).Requested }),
		Capacity:  s.Hours(func(p Sample) float64 { return of(p).Capacity }),
	}.Share()
}

// Peak is the largest value of the series, 0 when it is empty.
func (s Series) Peak(of func(Sample) float64) float64 {
	var peak float64
	for _, sample := range s {
		peak = max(peak, of(sample))
	}
	return peak
}

// Mark is a moment worth a line in a plot.
type Mark struct {
	At    time.Time
	Label string
}
