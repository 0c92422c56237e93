package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

// takeTheRest has a group that no process governs take all real-time bandwidth that the machine has left.
func takeTheRest(t *testing.T) {
	t.Helper()
	dir := fmt.Sprintf("/sys/fs/cgroup/cpu/mainspring-test-%d-rest", os.Getpid())
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "cpu.rt_runtime_us")
	give := func(us int) error { return os.WriteFile(file, []byte(strconv.Itoa(us)), 0o644) }
	t.Cleanup(func() {
		if err := give(0); err != nil {
			t.Error(err)
		}
		for range 100 { // it is torn down a while later
			if unix.Rmdir(dir) == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%s is still there", dir)
	})
	took := 0
	for step := 1 << 19; step > 0; step /= 2 {
		if give(took+step) == nil {
			took += step
		}
	}
	if took == 0 {
		t.Fatal("there was nothing left; the test is wrong")
	}
	t.Logf("another group took the last %d millionths", took)
}

// filler is a group that is to have so much of a core, without any task.
func filler(t *testing.T, ppm int64) table.Server {
	t.Helper()
	local, err := actuator.NewLocal(host.New("/"), actuator.IdentityCPU)
	if err != nil {
		t.Fatal(err)
	}
	group := fmt.Sprintf("/mainspring-test-%d/filler", os.Getpid())
	if err := local.Make(group); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := local.Remove(group); err != nil {
			t.Error(err)
		}
	})
	high := ppm / 10 // of a period of 100 ms
	return table.Server{
		ID: "filler", Cgroup: group, Criticality: "High", PeriodUs: 100_000, DeadlineUs: 100_000, LowUs: high, HighUs: high, LeastUs: high, Core: 1,
		Mode: table.Elastic, Overruns: 1, Periods: 1, DwellUs: 30_000,
	}
}

// TestAFullNodeStartsAgain: a node has all the servers that its published capacity allows, and others have the rest of the bandwidth.
// Its fast path is killed and must come back with the same backend, though there is nothing left to try any with, and go on raising.
func TestAFullNodeStartsAgain(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.RTGroups, privileged.BTF)
	privileged.Machine(t)
	task, p := task(t), newProcess(t, "")
	a := newContainer(t, task, actuator.IdentityCPU, "a", 1)
	before := a.file(t, "cpu", "cpu.rt_runtime_us") + a.file(t, "cpuset", "cpuset.cpus")
	p.begin()
	first := p.report()
	if first.Backend != actuator.RTGroup || len(first.Cores) != 1 {
		t.Fatalf("backend %s with cores %v; want %s and one core", first.Backend, first.Cores, actuator.RTGroup)
	}
	const share = 400_000 // of a, at its highest
	full := raising(1, a.server("a", 2_000, 1), filler(t, first.Cores[0].CapacityPpm-share))
	if err := p.Apply(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	a.realtime(t)
	p.raises(a)
	p.killLow(a)
	takeTheRest(t)
	for _, start := range []struct {
		name   string
		before func()
		kept   bool
	}{
		{"as it was", func() {}, true},
		{"without a record", func() { p.lose("") }, false},
		{"with a broken one", func() { p.lose("{") }, false},
		{"as it was without a measurement", func() {}, false},
	} {
		name := start.name
		start.before()
		p.begin()
		again := p.report()
		if again.Backend != first.Backend || len(again.Servers) != 2 {
			t.Errorf("%s: backend %s with %d servers; want %s with both", name, again.Backend, len(again.Servers), first.Backend)
		}
		measured := !strings.Contains(strings.Join(again.Missing, "\n"), "granularity")
		if start.kept != measured || start.kept && again.GranularityUs != first.GranularityUs {
			t.Errorf("%s: granularity %d us, %q; before it was %d us", name, again.GranularityUs, again.Missing, first.GranularityUs)
		}
		for _, s := range again.Servers {
			if s.Error != "" || s.BudgetUs == 0 {
				t.Errorf("%s: %+v", name, s)
			}
		}
		p.raises(a)
		t.Logf("%s: %s, %d us, %q", name, again.Backend, again.GranularityUs, again.Missing)
		p.killLow(a)
	}
	p.begin()
	if err := p.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := a.file(t, "cpu", "cpu.rt_runtime_us") + a.file(t, "cpuset", "cpuset.cpus"); after != before {
		t.Errorf("after the uninstall the kernel has %q; before it had %q", after, before)
	}
}

func (p *process) report() table.Report {
	p.t.Helper()
	r, err := p.Report(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

// raises waits until the fast path has raised the first server, in the kernel.
func (p *process) raises(c *container) {
	p.t.Helper()
	p.eventually("a raise to reach the kernel", func() error {
		s := p.report().Servers[0]
		inForce := c.file(p.t, "cpu", "cpu.rt_runtime_us")
		if s.Raises == 0 || s.BudgetUs == 2_000 || inForce != strconv.FormatInt(s.BudgetUs, 10) {
			return fmt.Errorf("the kernel has %s of %+v", inForce, s)
		}
		return nil
	})
}

// killLow kills the process as it might have been killed before any raise.
func (p *process) killLow(c *container) {
	p.t.Helper()
	p.kill()
	if err := os.WriteFile(filepath.Join("/sys/fs/cgroup/cpu", c.group, "cpu.rt_runtime_us"), []byte("2000"), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// lose the record of what was chosen, or have another text in its place.
func (p *process) lose(text string) {
	p.t.Helper()
	file := filepath.Join(p.state, "backend.json")
	err := os.Remove(file)
	if text != "" {
		err = os.WriteFile(file, []byte(text), 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}
