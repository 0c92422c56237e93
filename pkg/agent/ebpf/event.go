// Package ebpf loads the programs of bpf/ and gives them a typed interface: which cgroups are servers, what
// their budgets are, and a ring of events for each core. It is the only package that knows of BPF.
package ebpf

import "sync/atomic"

// MaxSlots is how many servers a node may have.
const MaxSlots = 2048

// Sources: where the budget that is left is read.
const (
	// SourceOwn is the programs' own account: windows of one period, each from the first use after the last.
	SourceOwn = iota
	// SourceRTGroup is the kernel's account of RT groups: the server's and those of every level around it.
	SourceRTGroup
	// SourceDeadline is the runtime left of a SCHED_DEADLINE thread.
	SourceDeadline
)

// Flags of a slot.
const (
	// FlagLive: the slot is in use. Of one without it the programs write no State.
	FlagLive = 1 << iota
	// FlagAlarm: tell KindAlarm and KindEnd.
	FlagAlarm
	// FlagRaised: tell KindClean.
	FlagRaised
	// FlagEnforce: tell KindEnd and then KindWindow: the reader enforces the budget.
	FlagEnforce
	// FlagJobs: count jobs and those that missed their deadline.
	FlagJobs
)

// Config is what the programs should know of a slot. They read it at any time: change a field at a time,
// with the functions of sync/atomic, and set FlagLive last. Times are nanoseconds.
type Config struct {
	// BudgetNs is the budget in force.
	BudgetNs uint64
	// AlarmNs is the use from which to tell.
	AlarmNs uint64
	// CleanNs: a window with at most this use is clean.
	CleanNs uint64
	// PeriodNs is how long a window lasts.
	PeriodNs uint64
	// DeadlineNs of a job, from its release; 0 is none.
	DeadlineNs uint64
	// WholeNs is what the threads of SourceDeadline share in equal parts; 0: each has BudgetNs.
	WholeNs uint64
	// CleanWindows: after so many consecutive clean ones KindClean is told, and again after every
	// quarter more.
	CleanWindows uint32
	// Source is one of the Source constants.
	Source uint32
	// Flags is a set of the Flag constants.
	Flags uint32
	// Generation changes when the slot changes hands. The State begins anew with it.
	Generation uint32
	// Rearm has KindAlarm told again in the window under way, when changed.
	Rearm uint32
	// Core is the one whose ring the slot's events go to.
	Core uint32
}

// State is what the programs know of a slot. Times are nanoseconds of CLOCK_MONOTONIC.
type State struct {
	// WindowStart of the window under way, UsedNs the CPU time in it. Both are of the last time that the
	// server was looked at: LastSeen.
	WindowStart uint64
	UsedNs      uint64
	// TotalNs is the CPU time in all, MaxUsedNs the most of one window.
	TotalNs   uint64
	MaxUsedNs uint64
	// Windows begun, and Overruns: those in which the budget was used up with work pending.
	Windows  uint64
	Overruns uint64
	// Throttles of the server by the kernel, or windows in which KindEnd was told for FlagEnforce. LevelThrottles of a group around it.
	Throttles      uint64
	LevelThrottles uint64
	// LastOverrun is when it was; 0: never.
	LastOverrun uint64
	LastSeen    uint64
	// Jobs that ended, Misses: those after their deadline. MaxResponseNs is the longest from release to end.
	Jobs          uint64
	Misses        uint64
	MaxResponseNs uint64
	// Clean is how many clean windows there were in a row; idle periods are clean.
	Clean uint32
	// Running is how many threads are on a CPU.
	Running uint32
}

// Load copies a State while the programs write it: each field is whole, but one may be newer than another.
func (s *State) Load() State {
	return State{
		WindowStart: atomic.LoadUint64(&s.WindowStart), UsedNs: atomic.LoadUint64(&s.UsedNs),
		TotalNs: atomic.LoadUint64(&s.TotalNs), MaxUsedNs: atomic.LoadUint64(&s.MaxUsedNs),
		Windows: atomic.LoadUint64(&s.Windows), Overruns: atomic.LoadUint64(&s.Overruns),
		Throttles: atomic.LoadUint64(&s.Throttles), LevelThrottles: atomic.LoadUint64(&s.LevelThrottles),
		LastOverrun: atomic.LoadUint64(&s.LastOverrun), LastSeen: atomic.LoadUint64(&s.LastSeen),
		Jobs: atomic.LoadUint64(&s.Jobs), Misses: atomic.LoadUint64(&s.Misses),
		MaxResponseNs: atomic.LoadUint64(&s.MaxResponseNs),
		Clean:         atomic.LoadUint32(&s.Clean), Running: atomic.LoadUint32(&s.Running),
	}
}

// Kinds of events.
const (
	// KindAlarm: AlarmNs of the budget is used and the server runs on. When UsedNs is less than that, a
	// group around the server ends first.
	KindAlarm = 1 + iota
	// KindEnd: the budget in force is used up. Once in a window, and again for a higher budget.
	KindEnd
	// KindWindow: the window after one with KindEnd begins.
	KindWindow
	// KindClean: a window begins after CleanWindows clean ones.
	KindClean
	// KindThrottled: the kernel stopped the server though no KindAlarm was told, or for whole windows to come (UsedNs is
	// two budgets or more), or a group around it.
	KindThrottled
	// KindAgain: with FlagEnforce, the server is real-time though KindEnd was told a while ago: it has set its policy itself, or
	// the reader is late.
	KindAgain
)

// Event is what a program tells. Times are nanoseconds of CLOCK_MONOTONIC.
type Event struct {
	// Instant is when it was due: of KindAlarm and KindEnd the exact end of that budget.
	Instant uint64
	// Detected is when the program saw it.
	Detected uint64
	// Window is the start of the window.
	Window uint64
	// UsedNs of the budget in that window, as its source says.
	UsedNs uint64
	// Slot and its Generation then.
	Slot       uint32
	Generation uint32
	// Kind is one of the Kind constants.
	Kind uint32
	// CPU on which the program ran.
	CPU uint32
}
