package fastpath_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// BenchmarkHundredServers is a raise on a core of a hundred servers, what follows from it, and its recovery.
func BenchmarkHundredServers(b *testing.B) {
	var paths []string
	var servers []table.Server
	for i := range 100 {
		path := fmt.Sprintf("/s%d", i)
		s := high(path, path, 0)
		s.PeriodUs, s.DeadlineUs, s.LowUs, s.LeastUs, s.HighUs, s.DwellUs = 100_000, 100_000, 300, 300, 600, 1
		paths, servers = append(paths, path), append(servers, s)
	}
	k, now := newKernel(paths...), int64(1_000_000_000)
	p := newPrograms()
	engine, err := fastpath.New(fastpath.Options{
		Backend: k, Programs: p, Cores: []int{0, 1}, Lead: 100 * time.Microsecond, StateDir: b.TempDir(), Now: func() int64 { return now },
		Wall: func() int64 { return now },
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := engine.Apply(tableOf(1, servers...)); err != nil {
		b.Fatal(err)
	}
	events := make([]ebpf.Event, 0, 200)
	for i := range servers {
		for _, kind := range []uint32{ebpf.KindAlarm, ebpf.KindClean} {
			events = append(events, p.event(uint64(100+i), kind, now))
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		now += 50_000_000
		event := &events[i%len(events)]
		event.Window = uint64(now - 1_000_000)
		fastpath.Handle(engine, 0, event)
	}
}
