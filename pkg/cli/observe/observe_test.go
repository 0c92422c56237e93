package observe_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/cli/observe"
	"github.com/mainspring-rt/mainspring/pkg/powermodel"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds float64) time.Time {
	return start.Add(time.Duration(seconds * float64(time.Second)))
}

func TestWattsFollowTheLoadsOfHostAndDevices(t *testing.T) {
	t.Parallel()
	host := powermodel.Machine{Host: powermodel.Range{Idle: 50, Max: 150}}
	gpus := powermodel.Machine{Host: host.Host, Devices: powermodel.Range{Idle: 30, Max: 330}}
	for name, c := range map[string]struct {
		node observe.Node
		want float64
	}{
		"idle":               {observe.Node{Power: host, CPU: observe.Amount{Requested: 0, Capacity: 4}}, 50},
		"half":               {observe.Node{Power: host, CPU: observe.Amount{Requested: 2, Capacity: 4}}, 100},
		"full":               {observe.Node{Power: host, CPU: observe.Amount{Requested: 4, Capacity: 4}}, 150},
		"overfull":           {observe.Node{Power: host, CPU: observe.Amount{Requested: 9, Capacity: 4}}, 150},
		"not joined":         {observe.Node{Power: host}, 50},
		"GPUs without a pod": {observe.Node{Power: gpus, CPU: observe.Amount{Requested: 4, Capacity: 4}}, 180},
		"half of the GPUs":   {observe.Node{Power: gpus, CPU: observe.Amount{Requested: 1, Capacity: 4}, DeviceLoad: 0.5}, 255},
		"nothing is known":   {observe.Node{CPU: observe.Amount{Requested: 4, Capacity: 4}, DeviceLoad: 1}, 0},
	} {
		if got := c.node.Watts(); got != c.want {
			t.Errorf("%s: got %v W, want %v", name, got, c.want)
		}
	}
}

func TestSeriesIntegratesSteps(t *testing.T) {
	t.Parallel()
	series := observe.Series{
		{At: at(0), Price: 2, Watts: 1000, Nodes: map[string]int{"a": 1}},
		{At: at(1800), Price: 4, Watts: 0, Nodes: map[string]int{"a": 1, "b": 1}},
		{At: at(3600), Price: 100, Watts: 100},
	}
	if got := series.Dollars(); got != 3 {
		t.Errorf("got $%v, want 3: half an hour at 2, half at 4, the last sample only ends it", got)
	}
	if got := series.KWh(); got != 0.5 {
		t.Errorf("got %v kWh, want 0.5", got)
	}
	if got := series.NodeHours(); got != 1.5 {
		t.Errorf("got %v node hours, want 1.5", got)
	}
	if got := series.Pools(); len(got) != 2 || got[0] != "a" || got[1] != "b" {
		t.Errorf("got pools %v", got)
	}
	if got := series.Between(at(1), at(3600)); len(got) != 2 {
		t.Errorf("got %d samples, want 2", len(got))
	}
}

func TestSampleTellsTheCostOfIdleNodes(t *testing.T) {
	t.Parallel()
	s := observe.SampleOf(observe.State{Nodes: []observe.Node{{Pool: "a", Price: 2, Pods: 1}, {Pool: "a", Price: 3}}})
	if s.Price != 5 || s.Idle != 3 || s.Count() != 2 {
		t.Errorf("got %+v", s)
	}
}

func TestEmptySeries(t *testing.T) {
	t.Parallel()
	var series observe.Series
	if series.Dollars() != 0 || series.Span() != 0 || series.Utilisation(func(s observe.Sample) observe.Amount { return s.CPU }) != 0 {
		t.Errorf("an empty series is not all zero")
	}
}

// Splitting a series at any sample changes no integral, and no integral leaves the range of its values.
func TestIntegralsAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 30).Draw(t, "samples")
		var series observe.Series
		now, low, high := 0.0, math.Inf(1), 0.0
		for range n {
			price := rapid.Float64Range(0, 100).Draw(t, "price")
			low, high = min(low, price), max(high, price)
			series = append(series, observe.Sample{At: at(now), Price: price})
			now += rapid.Float64Range(0, 100).Draw(t, "gap")
		}
		cut := rapid.IntRange(0, n-1).Draw(t, "cut")
		whole, parts := series.Dollars(), series[:cut+1].Dollars()+series[cut:].Dollars()
		if math.Abs(whole-parts) > 1e-9*(1+whole) {
			t.Fatalf("whole %v, parts %v", whole, parts)
		}
		hours := series.Span().Hours()
		if whole < low*hours-1e-9 || whole > high*hours+1e-9 {
			t.Fatalf("$%v outside [%v, %v]", whole, low*hours, high*hours)
		}
	})
}
