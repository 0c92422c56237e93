package rtruntime_test

import (
	"fmt"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
)

// The decision that every heartbeat asks for again, on a machine of 64 cores with 200 containers.
func BenchmarkDecideOnAFullMachine(b *testing.B) {
	m := newMachine(64)
	for i := range 200 {
		m.add(fmt.Sprintf("p%03d", i), "High", 10, 20, i%64)
	}
	m.settle(b, rtruntime.Pressure{}, start)
	n := m.view(b)
	b.ReportAllocs()
	for b.Loop() {
		rtruntime.Decide(n, rtruntime.Pressure{}, start, granularity)
	}
}
