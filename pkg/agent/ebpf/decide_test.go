package ebpf_test

import (
	"testing"

	cilium "github.com/cilium/ebpf"

	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

// decisions are the programs' decisions as they are compiled, in the kernel.
func decisions(t *testing.T) *decidePrograms {
	t.Helper()
	privileged.Require(t, privileged.Root, privileged.BTF)
	var programs decidePrograms
	if err := loadDecideObjects(&programs, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = programs.Close() })
	return &programs
}

// decide runs a decision: what it writes is in args afterwards.
func decide[T any](t *testing.T, program *cilium.Program, args *T) {
	t.Helper()
	if _, err := program.Run(&cilium.RunOptions{Context: args, ContextOut: args}); err != nil {
		t.Fatal(err)
	}
}

func TestOwnWindow(t *testing.T) {
	type window struct{ Start, Period, Queued, Now, Window uint64 }
	programs := decisions(t)
	for name, w := range map[string]window{
		"the first begins when the thread was queued": {0, 100, 40, 50, 40},
		"the one under way":                           {1000, 100, 1040, 1099, 1000},
		"at its end begins the next":                  {1000, 100, 1090, 1100, 1100},
		"work that waited over the end":               {1000, 100, 1050, 1130, 1100},
		"work that came later":                        {1000, 100, 1150, 1160, 1150},
		"work that waited for several periods":        {1000, 100, 1050, 1530, 1500},
		"work that came later and waited":             {1000, 100, 1150, 1460, 1450},
		"without a period it never ends":              {1000, 0, 1150, 9999, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			got := w
			got.Window = 0
			if decide(t, programs.DecideOwnWindow, &got); got != w {
				t.Errorf("window of %+v; want %+v", got, w)
			}
		})
	}
}

func TestSplit(t *testing.T) {
	type split struct{ From, To, Period, Since, Now, Before, After, Begun, Idle uint64 }
	programs := decisions(t)
	for name, s := range map[string]split{
		"within a window":                   {From: 1000, To: 1000, Period: 100, Since: 1010, Now: 1050, Before: 40},
		"over its end":                      {From: 1000, To: 1100, Period: 100, Since: 1090, Now: 1130, Before: 10, After: 30, Begun: 1},
		"from its very end":                 {From: 1000, To: 1100, Period: 100, Since: 1100, Now: 1130, After: 30, Begun: 1},
		"through several windows":           {From: 1000, To: 1300, Period: 100, Since: 1090, Now: 1330, Before: 10, After: 30, Begun: 3},
		"after idle periods":                {From: 1000, To: 1350, Period: 100, Since: 1350, Now: 1350, Begun: 1, Idle: 2},
		"less than a period idle":           {From: 1000, To: 1150, Period: 100, Since: 1150, Now: 1160, After: 10, Begun: 1},
		"the kernel's window came early":    {From: 1000, To: 1080, Period: 100, Since: 1050, Now: 1090, Before: 30, After: 10, Begun: 1},
		"a clock of another core is behind": {From: 1000, To: 1000, Period: 100, Since: 1060, Now: 1050},
		"without a period":                  {From: 1000, To: 2000, Since: 1010, Now: 1050, Before: 40},
	} {
		t.Run(name, func(t *testing.T) {
			got := split{From: s.From, To: s.To, Period: s.Period, Since: s.Since, Now: s.Now}
			if decide(t, programs.DecideSplit, &got); got != s {
				t.Errorf("split\n%+v; want\n%+v", got, s)
			}
		})
	}
}

func TestClean(t *testing.T) {
	type clean struct {
		Used, Limit, Begun, Idle    uint64
		Clean, Windows, After, Next uint32
		Stopped, Pad                uint32
	}
	programs := decisions(t)
	for name, c := range map[string]clean{
		"a clean window":                       {Used: 95, Limit: 95, Begun: 1, Clean: 3, Windows: 20, After: 4, Next: 9},
		"a dirty one":                          {Used: 96, Limit: 95, Begun: 1, Clean: 3, Windows: 20, After: 0, Next: 5},
		"idle periods are clean":               {Used: 10, Limit: 95, Begun: 1, Idle: 6, Clean: 3, Windows: 8, After: 10, Next: 12},
		"idle periods after a dirty window":    {Used: 96, Limit: 95, Begun: 1, Idle: 6, Clean: 3, Windows: 8, After: 6, Next: 8},
		"windows in which a debt was paid":     {Used: 10, Limit: 95, Begun: 1, Idle: 6, Clean: 3, Windows: 8, Stopped: 1, After: 0, Next: 2},
		"windows that were run through":        {Used: 10, Limit: 95, Begun: 2, Clean: 3, Windows: 8, After: 0, Next: 2},
		"told again after at least one window": {Used: 0, Limit: 95, Begun: 1, Clean: 0, Windows: 0, After: 1, Next: 2},
		"the count does not wrap":              {Limit: 95, Begun: 1, Idle: 1 << 40, Clean: 3, Windows: 8, After: 0xffffffff, Next: 1},
	} {
		t.Run(name, func(t *testing.T) {
			got := c
			got.After, got.Next = 0, 0
			if decide(t, programs.DecideClean, &got); got != c {
				t.Errorf("clean\n%+v; want\n%+v", got, c)
			}
		})
	}
}

func TestLostWindows(t *testing.T) {
	type lost struct{ Used, Budget, Lost uint64 }
	programs := decisions(t)
	for _, l := range []lost{{0, 4, 0}, {4, 4, 0}, {7, 4, 0}, {8, 4, 1}, {11, 4, 1}, {12, 4, 2}, {100, 4, 24}, {100, 0, 0}} {
		got := l
		got.Lost = 99
		if decide(t, programs.DecideLost, &got); got != l {
			t.Errorf("%+v; want %+v", got, l)
		}
	}
}

// A budget of 9 that three threads share.
func TestPartsOfABudget(t *testing.T) {
	type parts struct {
		Whole, Part   uint64
		Rest, Left    int64
		Sharers, Used uint64
		Each          int64
	}
	programs := decisions(t)
	for name, p := range map[string]parts{
		"nothing used":                           {Whole: 9000, Part: 3000, Rest: 3000, Left: 6000, Sharers: 3, Used: 0, Each: 2000},
		"a third":                                {Whole: 9000, Part: 3000, Rest: 2000, Left: 1000, Sharers: 3, Used: 3000, Each: 333},
		"a part is the whole":                    {Whole: 9000, Part: 3000, Rest: 0, Left: 0, Sharers: 3, Used: 9000, Each: 0},
		"beyond it":                              {Whole: 9000, Part: 3000, Rest: -100, Left: -300, Sharers: 3, Used: 9300, Each: -100},
		"parts that are rounded down":            {Whole: 10_000, Part: 3333, Rest: 0, Sharers: 3, Used: 10_000},
		"almost, of parts that are rounded down": {Whole: 10_000, Part: 3333, Rest: 1, Sharers: 3, Used: 9996},
		"one thread":                             {Whole: 9000, Part: 9000, Rest: -100, Left: 500, Sharers: 1, Used: 9100, Each: 500},
		"a budget of its own":                    {Whole: 0, Part: 3000, Rest: 1000, Left: 500, Sharers: 1, Used: 2000, Each: 500},
		"not replenished to this part yet":       {Whole: 9000, Part: 3000, Rest: 4500, Left: 9000, Sharers: 3, Used: 0, Each: 3000},
		"no deadline thread any more":            {Whole: 9000, Part: 0, Rest: 0, Left: 100, Sharers: 1, Used: 0, Each: 100},
	} {
		t.Run(name, func(t *testing.T) {
			got := p
			got.Sharers, got.Used, got.Each = 0, 0, 0
			if decide(t, programs.DecidePart, &got); got != p {
				t.Errorf("%+v; want %+v", got, p)
			}
		})
	}
}

// judged are the arguments and results of a verdict, as in bpf/tests/decide.bpf.c.
type judged struct {
	Budget, ToldAlarm, AlarmAt, ToldEnd, ToldOverrun uint64
	Alarm, End                                       int64
	Window, Period, Now                              uint64
	Flags, Rearm, Place                              uint32
	TellAlarm, TellOverrun, TellEnd, Pad             uint8
	Due                                              uint64
}

// Places, as in bpf/include/decide.h.
const (
	in = iota
	out
	blocked
	timer
)

func TestJudge(t *testing.T) {
	const (
		window, period, budget = 1_000_000_000, 10_000_000, 2_000_000
		never                  = 1<<63 - 1
		alarm                  = ebpf.FlagLive | ebpf.FlagAlarm
		enforce                = ebpf.FlagLive | ebpf.FlagEnforce
	)
	programs := decisions(t)
	for name, want := range map[string]judged{
		"something left: look at the alarm":              {Place: in, Flags: alarm, Alarm: 500_000, End: 900_000, Due: 500_000},
		"almost nothing left: not before a while":        {Place: in, Flags: alarm, Alarm: 3, End: 900_000, Due: 1000},
		"the alarm is due":                               {Place: timer, Flags: alarm, Alarm: 0, End: 400_000, TellAlarm: 1, Due: 400_000},
		"nothing left at switch-in":                      {Place: in, Flags: alarm, Alarm: -9, End: -5, TellAlarm: 1, TellOverrun: 1, Due: 100_000},
		"told before":                                    {Place: timer, Flags: alarm, Alarm: -9, End: 400_000, ToldAlarm: window, Due: 400_000},
		"told before, the window ends before the budget": {Place: in, Flags: alarm, Alarm: -9, End: 900_000, ToldAlarm: window, Now: window + period - 30_000, Due: 30_000},
		"the window ends before the alarm is due":        {Place: in, Flags: alarm, Alarm: 500_000, End: 900_000, Now: window + period - 30_000, Due: 500_000},
		"told before, rearmed":                           {Place: in, Flags: alarm, Rearm: 1, Alarm: -9, End: 400_000, ToldAlarm: window, TellAlarm: 1, Due: 400_000},
		"told in the window before":                      {Place: in, Flags: alarm, Alarm: -9, End: 400_000, ToldAlarm: window - period, TellAlarm: 1, Due: 400_000},
		"the end after an alarm":                         {Place: timer, Flags: alarm, Alarm: -500_000, End: 0, ToldAlarm: window, TellOverrun: 1, TellEnd: 1, Due: 9_900_000},
		"the end was told":                               {Place: timer, Flags: alarm, Alarm: -500_000, End: -9, ToldAlarm: window, ToldEnd: window + budget, ToldOverrun: window, Due: 9_900_000},
		"the end of a raised budget":                     {Place: timer, Flags: alarm, Alarm: -500_000, End: 0, ToldAlarm: window, ToldEnd: window + budget/2, ToldOverrun: window, TellEnd: 1, Due: 9_900_000},
		"the end comes while the alarm is answered":      {Place: timer, Flags: alarm, Alarm: -9, End: 0, ToldAlarm: window, AlarmAt: window + 60_000, TellOverrun: 1, Due: 60_000},
		"preempted while the alarm is answered":          {Place: out, Flags: alarm, Alarm: -9, End: -9, ToldAlarm: window, AlarmAt: window + 90_000, ToldOverrun: window, Due: 90_000},
		"blocked while the alarm is answered":            {Place: blocked, Flags: alarm, Alarm: -9, End: -9, ToldAlarm: window, AlarmAt: window + 90_000, TellOverrun: 1},
		"the alarm was not answered":                     {Place: timer, Flags: alarm, Alarm: -9, End: -9, ToldAlarm: window, AlarmAt: window, ToldOverrun: window, TellEnd: 1, Due: 9_900_000},
		"preempted past the alarm":                       {Place: out, Flags: alarm, Alarm: -5, End: 300_000, TellAlarm: 1, Due: 300_000},
		"blocked past the alarm: done in time":           {Place: blocked, Flags: alarm, Alarm: -5, End: 300_000},
		"blocked at the very end: done in time":          {Place: blocked, Flags: alarm, Alarm: -5, End: 0},
		"blocked past the end: it had overrun":           {Place: blocked, Flags: alarm, Alarm: -500_000, End: -1, ToldAlarm: window, TellOverrun: 1, TellEnd: 1},
		"only counted":                                   {Place: timer, Flags: ebpf.FlagLive, Alarm: -9, End: 0, TellOverrun: 1, Due: 9_900_000},
		"only counted, alarm not told":                   {Place: timer, Flags: ebpf.FlagLive, Alarm: -9, End: 70_000, Due: 70_000},
		"enforced without alarms":                        {Place: timer, Flags: enforce, Alarm: -9, End: 0, TellOverrun: 1, TellEnd: 1, Due: 9_900_000},
		"enforced, nothing above the budget":             {Place: timer, Flags: alarm | enforce, Alarm: 0, End: 0, TellAlarm: 1, TellOverrun: 1, TellEnd: 1, Due: 9_900_000},
		"enforced, the alarm is not answered yet":        {Place: timer, Flags: alarm | enforce, Alarm: -50_000, End: 0, ToldAlarm: window, AlarmAt: window + 50_000, TellOverrun: 1, TellEnd: 1, Due: 9_900_000},
		"no budget binds the thread":                     {Place: in, Flags: alarm, Alarm: never, End: never},
		"no budget binds the thread, only counted":       {Place: in, Flags: ebpf.FlagLive, Alarm: never, End: never},
		"the window's end has passed unseen":             {Place: timer, Flags: alarm, Alarm: -9, End: -9, ToldAlarm: window, ToldEnd: window + budget, ToldOverrun: window, Now: window + period + 5, Due: 100_000},
	} {
		t.Run(name, func(t *testing.T) {
			want.Budget, want.Window, want.Period = budget, window, period
			if want.Now == 0 {
				want.Now = window + 100_000
			}
			got := want
			got.TellAlarm, got.TellOverrun, got.TellEnd, got.Due = 0, 0, 0, 0
			if decide(t, programs.DecideJudge, &got); got != want {
				t.Errorf("judged\n%+v; want\n%+v", got, want)
			}
		})
	}
}

// Whoever is real-time then has not been stopped, or has undone it.
func TestEnded(t *testing.T) {
	type ended struct {
		Budget, ToldEnd, Window uint64
		End                     int64
		Flags, Ended            uint32
	}
	const window, budget, enforce = 1_000_000, 2_000, ebpf.FlagLive | ebpf.FlagEnforce
	programs := decisions(t)
	for name, e := range map[string]ended{
		"told":                      {ToldEnd: window + budget, Flags: enforce, Ended: 1},
		"told a while ago":          {ToldEnd: window + budget, End: -900, Flags: enforce, Ended: 1},
		"raised since":              {ToldEnd: window + budget, End: 500, Flags: enforce},
		"told of another budget":    {ToldEnd: window + budget/2, End: -900, Flags: enforce},
		"told in the window before": {ToldEnd: window - 100_000 + budget, End: -900, Flags: enforce},
		"not told":                  {End: -900, Flags: enforce},
		"nobody is to stop it":      {ToldEnd: window + budget, End: -900, Flags: ebpf.FlagLive | ebpf.FlagAlarm},
	} {
		t.Run(name, func(t *testing.T) {
			e.Window, e.Budget = window, budget
			got := e
			got.Ended = 9
			if decide(t, programs.DecideEnded, &got); got != e {
				t.Errorf("ended\n%+v; want\n%+v", got, e)
			}
		})
	}
}

func TestJobs(t *testing.T) {
	type jobs struct{ Release, Now, Deadline, Period, Interval, Jobs, Misses, Response uint64 }
	programs := decisions(t)
	for name, j := range map[string]jobs{
		"in time":                              {Release: 100, Now: 150, Deadline: 50, Period: 100, Jobs: 1, Response: 50},
		"late":                                 {Release: 100, Now: 151, Deadline: 50, Period: 100, Jobs: 1, Misses: 1, Response: 51},
		"late by periods: each says so itself": {Release: 100, Now: 900, Deadline: 50, Period: 100, Jobs: 1, Misses: 1, Response: 800},
		"no deadline":                          {Release: 100, Now: 900, Period: 100, Jobs: 1, Response: 800},
		"not released yet: a sleep begun once more": {Release: 100, Now: 90, Deadline: 50, Period: 100},
		"no release is known":                       {Now: 90, Deadline: 50, Period: 100},
		"an interval in time":                       {Release: 100, Now: 200, Deadline: 100, Period: 100, Interval: 1, Jobs: 1, Response: 100},
		"an interval of two jobs, one late":         {Release: 100, Now: 201, Deadline: 100, Period: 100, Interval: 1, Jobs: 2, Misses: 1, Response: 101},
		"an interval of three, two late":            {Release: 100, Now: 350, Deadline: 100, Period: 100, Interval: 1, Jobs: 3, Misses: 2, Response: 250},
		"an interval with a short deadline":         {Release: 100, Now: 260, Deadline: 50, Period: 100, Interval: 1, Jobs: 2, Misses: 2, Response: 160},
		"an interval without a period":              {Release: 100, Now: 260, Deadline: 50, Interval: 1, Jobs: 1, Misses: 1, Response: 160},
	} {
		t.Run(name, func(t *testing.T) {
			got := j
			got.Jobs, got.Misses, got.Response = 0, 0, 0
			if decide(t, programs.DecideJob, &got); got != j {
				t.Errorf("jobs\n%+v; want\n%+v", got, j)
			}
		})
	}
}

func TestBucket(t *testing.T) {
	type bucket struct {
		Ns              uint64
		Buckets, Bucket uint32
	}
	programs := decisions(t)
	for _, b := range []bucket{
		{0, 24, 0}, {999, 24, 0}, {1000, 24, 1}, {1999, 24, 1}, {2000, 24, 2}, {3999, 24, 2}, {4000, 24, 3},
		{1_000_000, 24, 10}, {1 << 62, 24, 23}, {1 << 63, 8, 7},
	} {
		got := b
		got.Bucket = 0
		if decide(t, programs.DecideBucket, &got); got != b {
			t.Errorf("bucket %+v; want %+v", got, b)
		}
	}
}
