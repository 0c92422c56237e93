package governor_test

import (
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/governor"
)

func TestRecoveryWaitsForTheDwell(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ period, dwell, want int64 }{
		"a second":       {10_000, 0, 1000 * ms},
		"twenty periods": {100_000, 0, 2000 * ms},
		"as asked":       {10_000, 3_000_000, 3000 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			s := srv(0, "High", 2000, 4000)
			s.PeriodUs, s.DeadlineUs, s.DwellUs = test.period, test.period, test.dwell
			b := newBench(t, governor.Options{}, 900_000, s).begun()
			b.clean(0, governor.None)
			b.alarm(0, 0, governor.Raised)
			b.pass(10 * ms)
			b.end(0, governor.Counted) // the dwell begins with the last overrun
			b.pass(test.want - 1)
			b.clean(0, governor.None)
			b.pass(1)
			b.clean(0, governor.Recovered)
			b.has(2000)
			if s := b.State(0); s.Recoveries != 1 || s.Raised {
				t.Errorf("%+v", s)
			}
		})
	}
}

// The dwell doubles when a server escalates again soon after its recovery, six times at most, and halves for every
// quiet time of twice its length.
func TestTheDwellDoublesAndDecays(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 2000, 4000)).begun()
	again := func(quiet int64, want int64) {
		t.Helper()
		b.pass(quiet)
		b.alarm(0, 0, governor.Raised)
		if got := b.State(0).DwellNs; got != want*1000*ms {
			t.Errorf("the dwell is %d ms, want %d s", got/ms, want)
		}
		b.pass(want*1000*ms - 1)
		b.clean(0, governor.None)
		b.pass(1)
		b.clean(0, governor.Recovered)
	}
	again(10*ms, 1)
	for _, want := range []int64{2, 4, 8, 16, 32, 64, 64} {
		again(10*ms, want)
	}
	again(128_001*ms, 32)  // one quiet time of twice 64 s
	again(2*32_000*ms, 64) // just soon enough
	again(1_000_000*ms, 1) // all forgotten
	again(2_001*ms, 1)
	again(2_000*ms, 2)
}

func TestAnIdleServerRecovers(t *testing.T) {
	seen := start
	s := srv(0, "High", 2000, 4000)
	s.DwellUs = 100_000
	b := newBench(t, governor.Options{Seen: func(int) int64 { return seen }}, 900_000, s).begun()
	b.alarm(0, 0, governor.Raised)
	b.tickFor(999 * ms)
	b.has(4000)
	seen = b.now // it ran again
	b.tickFor(999 * ms)
	b.has(4000)
	b.tickFor(ms)
	b.has(2000)
	if b.State(0).Recoveries != 1 || b.Tick(b.now, b.kernel) != 0 {
		t.Error("something is left to do")
	}
}

func TestIdlenessIsUnknownWithoutSeen(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 2000, 4000)).begun()
	b.alarm(0, 0, governor.Raised)
	b.tickFor(100_000 * ms)
	b.has(4000)
}

func TestARefusedRecoveryIsTriedAgain(t *testing.T) {
	b := newBench(t, governor.Options{Seen: func(int) int64 { return start }}, 900_000, srv(0, "High", 2000, 4000)).begun()
	b.alarm(0, 0, governor.Raised)
	b.pass(1000 * ms)
	b.refuse = 2
	b.clean(0, governor.Refused)
	if s := b.State(0); s.LevelUs != 4000 || !s.Raised {
		t.Errorf("%+v", s)
	}
	b.tickFor(2 * ms)
	b.has(4000)
	b.tickFor(10 * ms)
	b.has(2000)
}

// A raise by the table is the least: a recovery goes back to it, not below.
func TestRecoveryKeepsTheLeastBudget(t *testing.T) {
	s := srv(0, "High", 2000, 5000)
	s.LevelsUs, s.LeastUs = []int64{3000}, 3000
	b := newBench(t, governor.Options{}, 900_000, s).begun()
	b.has(3000)
	b.alarm(0, 0, governor.Raised)
	b.has(5000)
	b.pass(1000 * ms)
	b.clean(0, governor.Recovered)
	b.has(3000)
}

func TestTimeDoesNotGoBack(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 2000, 4000)).begun()
	b.alarm(0, 0, governor.Raised)
	b.pass(1000 * ms)
	b.clean(0, governor.Recovered)
	b.now -= 500 * ms
	b.alarm(0, 0, governor.Raised)
	b.has(4000)
}
