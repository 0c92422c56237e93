package pressure_test

import (
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/pressure"
	"github.com/mainspring-rt/mainspring/pkg/host"
)

// FuzzSample: whatever /proc/stat says twice, be it counters that have wrapped around, as those of stolen time did on some kernels, a utilisation is
// from 0 to 100 percent, and each CPU is told of once.
func FuzzSample(f *testing.F) {
	f.Add("cpu0 1000 0 0 9000\ncpu1 1000 0 0 9000", "cpu0 1050 0 0 9050\ncpu1 1000 0 0 9100")
	f.Add("cpu0 0 0 0 0 0 0 0 0", "cpu0 9223372036854775808 0 0 1 0 0 0 9223372036854775808") // busy and stolen add up to nothing
	f.Add("cpu0 0 0 0 0", "cpu0 9223372036854775808 0 0 9223372036854775813")                 // all of it is 5
	f.Add("cpu0 1 1 1 1 1 1 1 18446744073709551615\ncpu0 2 1 1 1", "cpu0 2 1 1 1 1 1 1 0\ncpu0 2 1 1 1")
	f.Add("", "cpu7 1 2 3 4")
	f.Fuzz(func(t *testing.T, before, now string) {
		w := newWorld(t, pressure.DefaultRule())
		for _, text := range []string{before, now, before} {
			times, err := host.ParseCPUTimes(text)
			if err != nil {
				return
			}
			w.machine.cpus = times
			w.clock.Step(time.Second)
			s := w.sample()
			if s.Percent < 0 || s.Percent > 100 {
				t.Fatalf("%q, then %q: %d %%", before, now, s.Percent)
			}
			seen := map[int]bool{}
			for _, core := range s.Cores {
				if core.Percent < 0 || core.Percent > 100 || seen[core.ID] {
					t.Fatalf("%q, then %q: %+v", before, now, s.Cores)
				}
				seen[core.ID] = true
			}
		}
	})
}
