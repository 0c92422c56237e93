package actuator

import (
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// A process that is in the cpuset above its container's, as after its core was offline, is moved back on a real kernel.
func TestAProcessAboveItsCpusetOnThisKernel(t *testing.T) {
	for _, backend := range []string{RTGroup, CFS} {
		t.Run(backend, func(t *testing.T) {
			b, top := realMachine(t, backend)
			group := top + "/c"
			makeReal(t, group)
			pid := hog(t)
			write(t, "cpu", group, "cgroup.procs", pid)
			write(t, "cpuset", group, "cgroup.procs", pid)
			g, err := b.Open(Server{Cgroup: group, Core: 1, PeriodUs: 20_000, DeadlineUs: 20_000, BudgetUs: 2_000, HighUs: 4_000, Priority: 7})
			if err != nil {
				t.Fatal(err)
			}
			write(t, "cpuset", top, "cgroup.procs", pid)
			drift, err := g.Check()
			if err != nil || len(drift) != 1 || !strings.Contains(drift[0], "in cpusets above its own") {
				t.Errorf("Check: %q, %v; want the thread that was outside", drift, err)
			}
			cg, err := host.New("/").Cgroups()
			if err != nil {
				t.Fatal(err)
			}
			dir, err := cg.Dir("cpuset", group)
			if err != nil {
				t.Fatal(err)
			}
			if got := slurp(dir + "/cgroup.procs"); got != itoa(int64(pid)) {
				t.Errorf("the container's cpuset has processes %q; want %d", got, pid)
			}
		})
	}
}
