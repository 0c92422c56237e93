package pressure_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/agent/pressure"
	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/host/hosttest"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// machine is a fake of /proc/stat: CPUs whose counters the test moves.
type machine struct {
	cpus    []host.CPUTime
	psi     *host.PSI
	nextErr error
}

func (m *machine) CPUTimes() ([]host.CPUTime, error) {
	err := m.nextErr
	m.nextErr = nil
	return append([]host.CPUTime(nil), m.cpus...), err
}

func (m *machine) PSI(string, string) (host.PSI, error) {
	if m.psi == nil {
		return host.PSI{}, host.ErrUnsupported
	}
	return *m.psi, nil
}

// run lets every CPU work for that part of a time.
func (m *machine) run(percent int, d time.Duration) {
	for i := range m.cpus {
		ticks := uint64(d / (10 * time.Millisecond))
		m.cpus[i].User += ticks * uint64(percent) / 100
		m.cpus[i].Idle += ticks - ticks*uint64(percent)/100
	}
}

type world struct {
	*testing.T
	machine *machine
	clock   *clocktesting.FakeClock
	monitor *pressure.Monitor
}

func newWorld(t *testing.T, rule pressure.Rule, cpus ...int) *world {
	t.Helper()
	m := &machine{}
	for _, id := range cpus {
		m.cpus = append(m.cpus, host.CPUTime{CPU: id, User: 1000, Idle: 9000})
	}
	clk := clocktesting.NewFakeClock(start)
	monitor, err := pressure.New(m, rule, clk)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, machine: m, clock: clk, monitor: monitor}
	if s := w.sample(); s.Known {
		t.Fatalf("known at the first sample: %+v", s)
	}
	return w
}

func (w *world) sample() pressure.State {
	w.Helper()
	s, err := w.monitor.Sample()
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// pass lets the machine work and samples once after it.
func (w *world) pass(percent int, d time.Duration) pressure.State {
	w.Helper()
	w.machine.run(percent, d)
	w.clock.Step(d)
	return w.sample()
}

func TestTheSeedsRule(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pressure.DefaultRule(), 0, 1)
	for second := 1; second <= 4; second++ {
		if s := w.pass(95, time.Second); s.Busy || s.Percent != 95 || s.Over != time.Duration(second)*time.Second {
			t.Fatalf("second %d: %+v", second, s)
		}
	}
	s := w.pass(90, time.Second)
	if !s.Busy || !s.BusySince.Equal(start.Add(5*time.Second)) || s.Over != 5*time.Second {
		t.Fatalf("after 5 s at 90 %% and above: %+v", s)
	}
	for second := 1; second <= 4; second++ {
		if s = w.pass(10, time.Second); !s.Busy || s.Over != 0 {
			t.Fatalf("calm second %d: %+v", second, s)
		}
	}
	if s = w.pass(91, time.Second); !s.Busy {
		t.Fatalf("interrupted calm: %+v", s)
	}
	for range 4 {
		w.pass(89, time.Second)
	}
	if s = w.pass(89, time.Second); s.Busy || !s.BusySince.IsZero() {
		t.Fatalf("after 5 s below: %+v", s)
	}
}

func TestBothDirectionsAreConfigurable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pressure.Rule{BusyPercent: 50, BusyFor: 2 * time.Second, CalmPercent: 20, CalmFor: 0}, 0)
	w.pass(50, time.Second)
	if s := w.pass(50, time.Second); !s.Busy {
		t.Fatalf("got %+v", s)
	}
	if s := w.pass(30, time.Minute); !s.Busy || s.Over != 0 {
		t.Fatalf("between the two it stays what it was: %+v", s)
	}
	if s := w.pass(19, time.Second); s.Busy {
		t.Fatalf("calm at once: %+v", s)
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	if err := pressure.DefaultRule().Validate(); err != nil {
		t.Error(err)
	}
	for want, rule := range map[string]pressure.Rule{
		"busyPercent 0":   {CalmPercent: 1},
		"busyPercent 101": {BusyPercent: 101, CalmPercent: 1},
		"calmPercent 91":  {BusyPercent: 90, CalmPercent: 91},
		"calmPercent 0":   {BusyPercent: 90},
		"busyFor -1s":     {BusyPercent: 90, CalmPercent: 90, BusyFor: -time.Second},
		"calmFor -1s":     {BusyPercent: 90, CalmPercent: 90, CalmFor: -time.Second},
	} {
		if _, err := pressure.New(&machine{}, rule, clocktesting.NewFakeClock(start)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

func TestEveryCore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pressure.DefaultRule(), 0, 2)
	w.machine.cpus[0].System += 75
	w.machine.cpus[0].IOWait += 25
	w.machine.cpus[1].Idle += 80
	w.machine.cpus[1].Stolen += 20
	w.clock.Step(time.Second)
	s := w.sample()
	if len(s.Cores) != 2 || s.Cores[0] != (pressure.Core{ID: 0, Percent: 75}) || s.Cores[1] != (pressure.Core{ID: 2, Percent: 20}) {
		t.Errorf("waiting is rest, what is stolen is not: %+v", s)
	}
	if s.Percent != 48 { // 47.5
		t.Errorf("got %d", s.Percent)
	}
}

func TestHotplug(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pressure.DefaultRule(), 0, 1)
	w.pass(50, time.Second)
	w.machine.cpus = append(w.machine.cpus, host.CPUTime{CPU: 5, User: 1_000_000})
	if s := w.pass(40, time.Second); s.Percent != 40 || len(s.Cores) != 2 {
		t.Errorf("one that came: %+v", s)
	}
	w.machine.cpus = w.machine.cpus[1:]
	if s := w.pass(30, time.Second); s.Percent != 30 || len(s.Cores) != 2 || s.Cores[1].ID != 5 {
		t.Errorf("one that went: %+v", s)
	}
	w.machine.cpus = []host.CPUTime{{CPU: 9}}
	if s := w.pass(100, time.Second); s.Percent != 30 {
		t.Errorf("none that is known: %+v", s)
	}
	if s := w.pass(20, time.Second); s.Percent != 20 {
		t.Errorf("known again: %+v", s)
	}
}

func TestResets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pressure.DefaultRule(), 0, 1)
	w.pass(100, 4*time.Second)
	w.machine.cpus[0] = host.CPUTime{CPU: 0, User: 3}
	w.machine.cpus[1] = host.CPUTime{CPU: 1, User: 4}
	s := w.pass(100, 4*time.Second)
	if s.Busy || s.Percent != 100 {
		t.Errorf("time of which nothing is known counts for neither side: %+v", s)
	}
	if s = w.pass(100, 4*time.Second); s.Busy || s.Over != 4*time.Second {
		t.Errorf("counts anew: %+v", s)
	}
	w.machine.cpus[0].Idle -= min(2, w.machine.cpus[0].Idle) // the kernel corrects itself
	if s = w.pass(100, time.Second); !s.Busy || len(s.Cores) != 2 {
		t.Errorf("got %+v", s)
	}
}

func TestNoTickHasPassed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pressure.DefaultRule(), 0)
	w.pass(60, time.Second)
	w.clock.Step(time.Millisecond)
	if s := w.sample(); s.Percent != 60 || !s.At.Equal(start.Add(time.Second)) {
		t.Errorf("got %+v", s)
	}
	if s := w.pass(80, time.Second); s.Percent != 80 {
		t.Errorf("got %+v", s)
	}
}

func TestAClockThatStepsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pressure.DefaultRule(), 0)
	w.pass(95, 4*time.Second)
	w.clock.SetTime(start.Add(-time.Hour))
	w.machine.run(95, time.Second)
	if s := w.sample(); s.Busy || s.Over != 0 {
		t.Errorf("got %+v", s)
	}
}

func TestPSI(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pressure.DefaultRule(), 0)
	if s := w.pass(1, time.Second); s.PSI != nil {
		t.Errorf("got %+v", s.PSI)
	}
	w.machine.psi = &host.PSI{Some: host.Stall{Avg10: 4083}}
	if s := w.pass(1, time.Second); s.PSI == nil || s.PSI.Some.Avg10 != 4083 {
		t.Errorf("got %+v", s.PSI)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pressure.DefaultRule(), 0)
	w.pass(60, time.Second)
	w.machine.nextErr = errors.New("stat is gone")
	s, err := w.monitor.Sample()
	if err == nil || !strings.Contains(err.Error(), "stat is gone") || s.Percent != 60 {
		t.Errorf("got %+v, %v", s, err)
	}
	if s := w.pass(70, time.Second); s.Percent != 70 {
		t.Errorf("goes on afterwards: %+v", s)
	}
}

func TestOnAMachine(t *testing.T) {
	t.Parallel()
	tree := hosttest.Lab(t)
	clk := clocktesting.NewFakeClock(start)
	monitor, err := pressure.New(tree.Host(), pressure.DefaultRule(), clk)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := monitor.Sample(); err != nil {
		t.Fatal(err)
	}
	tree.Stat("0-1", 100+92, 900+8)
	clk.Step(time.Second)
	if s, err := monitor.Sample(); err != nil || s.Percent != 92 || s.PSI == nil || s.PSI.Some.Avg10 != 125 {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	m := &machine{cpus: []host.CPUTime{{CPU: 0}}}
	clk := clocktesting.NewFakeClock(start)
	monitor, err := pressure.New(m, pressure.DefaultRule(), clk)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	states, ended := make(chan pressure.State), make(chan struct{})
	go func() {
		defer close(ended)
		monitor.Run(ctx, time.Second, func(s pressure.State, _ error) { states <- s })
	}()
	if s := <-states; s.Known {
		t.Errorf("got %+v", s)
	}
	m.run(33, time.Second)
	clk.Step(time.Second)
	if s := <-states; s.Percent != 33 {
		t.Errorf("got %+v", s)
	}
	cancel()
	<-ended
}

// Whatever counters do, figures are percentages, and busy is only what was over for long enough.
func TestAnyCounters(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{}
		clk := clocktesting.NewFakeClock(start)
		monitor, err := pressure.New(m, pressure.DefaultRule(), clk)
		if err != nil {
			t.Fatal(err)
		}
		over := time.Duration(0)
		for range rapid.IntRange(1, 20).Draw(t, "samples") {
			m.cpus = rapid.SliceOfNDistinct(rapid.Custom(drawCPU), 0, 4, func(c host.CPUTime) int { return c.CPU }).Draw(t, "cpus")
			step := time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond
			clk.Step(step)
			before, _ := monitor.Sample()
			if before.Percent < 0 || before.Percent > 100 {
				t.Fatalf("got %+v", before)
			}
			for _, c := range before.Cores {
				if c.Percent < 0 || c.Percent > 100 {
					t.Fatalf("got %+v", before)
				}
			}
			over += step
			if before.Busy && over < 5*time.Second {
				t.Fatalf("busy after %s: %+v", over, before)
			}
		}
	})
}

func drawCPU(t *rapid.T) host.CPUTime {
	ticks := rapid.Uint64Range(0, 1000)
	return host.CPUTime{CPU: rapid.IntRange(0, 5).Draw(t, "cpu"), User: ticks.Draw(t, "user"), Idle: ticks.Draw(t, "idle"),
		IOWait: ticks.Draw(t, "iowait"), Stolen: ticks.Draw(t, "stolen")}
}
