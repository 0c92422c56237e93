package hollow

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// busyPercent is the CPU utilisation from which a node counts as busy, as in MC-Kube.
const busyPercent = 90

func (m *Machine) press(percent int32, now time.Time) {
	m.cpuPercent = percent
	switch {
	case percent < busyPercent:
		m.busySince = nil
	case m.busySince == nil:
		since := metav1.NewTime(now)
		m.busySince = &since
	}
}

// pressEach makes the node as busy as the servers in force keep it, where a script says what each does.
func (m *Machine) pressEach(now time.Time) {
	if m.percentEach == 0 {
		return
	}
	percent := int64(0)
	for _, s := range m.servers {
		if s.budget > 0 {
			percent = min(100, percent+m.percentEach)
		}
	}
	m.press(int32(percent), now)
}

// lateEvery is how often each container of a node misses a deadline that is late.
const lateEvery = time.Second

// beginLate lets the node be late for a time, or from now on when the time is 0.
func (m *Machine) beginLate(length time.Duration, now time.Time) {
	if length == 0 {
		length = maxAfter
	}
	m.lateUntil = now.Add(length)
	m.nextLate = maxTime(now, m.since).Add(lateEvery)
}

// miss lets a job of every server in force end after its deadline.
func (m *Machine) miss(now time.Time) {
	if now.After(m.lateUntil) {
		m.nextLate = time.Time{}
		return
	}
	m.nextLate = now.Add(lateEvery)
	if m.Silent() {
		return
	}
	for _, s := range m.servers {
		if s.budget > 0 {
			s.misses++
		}
	}
}

// sweepEvery is how often the agent compares what is in force with what should be.
const sweepEvery = time.Second

// sweep finds every budget changed by something else, while something disturbs, and sets it right.
func (m *Machine) sweep(now time.Time) {
	if now.After(m.driftUntil) {
		m.nextSweep = time.Time{}
		return
	}
	m.nextSweep = now.Add(sweepEvery)
	if m.Silent() {
		return
	}
	for _, s := range m.servers {
		if s.budget > 0 {
			s.drift++
		}
	}
}

// drifting says that something disturbed the node since the sweep before the last.
func (m *Machine) drifting() bool { return !m.nextSweep.IsZero() }
