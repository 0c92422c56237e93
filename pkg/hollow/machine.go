package hollow

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// Machine is the agent of one node, and what the node's kernel would do. The caller moves it along in
// time: Observe what is there, Advance to now, read Status and Devices, and come back at Next.
// It is not safe for concurrent use.
type Machine struct {
	cores  []rt.Core
	script *cursor
	now    time.Time // how far it has come
	since  time.Time // what happened until then is over

	granularity int64
	cpuPercent  int32
	percentEach int64 // what each server in force adds to cpuPercent; 0 when a script says how busy the node is
	busySince   *metav1.Time
	lateUntil   time.Time
	nextLate    time.Time // zero when no job of the node is late
	silentUntil time.Time
	dead        bool
	driftUntil  time.Time // the end of the last disturbance
	nextSweep   time.Time // zero when nothing disturbs

	generation int64
	plans      map[int32]v1alpha1.RTCorePlan // by core
	servers    map[Key]*server
	earlier    map[Key]*server // as an earlier agent had reported them, until the first spec is seen
	containers map[Key]Container
	holds      []hold
	freeAt     map[int32]time.Time // by core: the deadline of the last raise that ended
	conditions []metav1.Condition
}

// hold is bandwidth of a core that is promised until a deadline, though nobody will use it afterwards:
// before its 0-lag time it must not be given to somebody else.
type hold struct {
	core  int32
	ppm   rt.PPM
	until time.Time
}

// Container is what the agent sees of a container that runs on its node.
type Container struct {
	// Started is when it started; zero before.
	Started time.Time
	// Script of its Pod.
	Script []Step
	// Base is when the script's time begins; zero before Started.
	Base time.Time
}

// View is what the agent of a node can see.
type View struct {
	// RTNode of the node; nil until the controller has created it.
	RTNode *v1alpha1.RTNode
	// Containers on the node.
	Containers map[Key]Container
	// Dead: the machine does not answer, nor does its agent.
	Dead bool
}

// NewMachine starts the agent of a node with these cores, that was created at the given time.
func NewMachine(cores []rt.Core, created time.Time) *Machine {
	m := &Machine{
		cores: slices.Clone(cores), now: created, servers: map[Key]*server{}, freeAt: map[int32]time.Time{},
	}
	for _, c := range cores {
		m.granularity = max(m.granularity, c.Granularity)
	}
	return m
}

// SetScript gives the node another script, whose time begins at base. What the one before set stays.
func (m *Machine) SetScript(steps []Step, base time.Time) { m.script = nodeCursor(steps, base) }

// Resume takes over what an earlier agent of the node had reported: counters go on, and what had happened
// in scripts until its last sign of life does not happen again.
func (m *Machine) Resume(reported v1alpha1.RTNodeStatus) {
	if reported.HeartbeatTime == nil {
		return
	}
	m.since = reported.HeartbeatTime.Time
	m.earlier = make(map[Key]*server, len(reported.Servers))
	m.conditions = slices.DeleteFunc(slices.Clone(reported.Conditions), func(c metav1.Condition) bool {
		return c.Type == v1alpha1.ConditionAgentAlive // the controller's
	})
	for _, s := range reported.Servers {
		resumed := &server{overruns: s.Overruns, misses: s.Misses, drift: s.Drift}
		if s.LastOverrunTime != nil {
			resumed.lastOverrun = s.LastOverrunTime.Time
		}
		m.earlier[Key{Pod: s.PodUID, Container: s.Container}] = resumed
	}
}

// Observe shows the machine what is there now. A silent agent sees nothing.
func (m *Machine) Observe(v View, now time.Time) {
	m.Advance(now)
	if m.dead && !v.Dead {
		m.wake(now)
	}
	m.dead = v.Dead
	if m.Silent() || v.RTNode == nil {
		return
	}
	m.containers = v.Containers
	m.generation = v.RTNode.Generation
	m.plans = make(map[int32]v1alpha1.RTCorePlan, len(v.RTNode.Spec.Plan))
	for _, p := range v.RTNode.Spec.Plan {
		m.plans[p.Core] = p
	}
	m.apply(v.RTNode.Spec.Servers, now)
}

// maxHappenings bounds what one step in time may process; the rest follows in the next.
const maxHappenings = 10_000

// Advance lets everything happen that is due until now, in order.
func (m *Machine) Advance(now time.Time) {
	for range maxHappenings {
		at, happen := m.earliest()
		if happen == nil || at.After(now) {
			break
		}
		m.now = maxTime(m.now, at)
		happen(m.now)
	}
	m.now = maxTime(m.now, now)
}

// Next is when something is due; ok is false when nothing is.
func (m *Machine) Next() (at time.Time, ok bool) {
	at, happen := m.earliest()
	return at, happen != nil
}

// Silent says that the agent neither acts nor reports.
func (m *Machine) Silent() bool { return m.dead || m.now.Before(m.silentUntil) }

// earliest is what is due first.
func (m *Machine) earliest() (at time.Time, happen func(time.Time)) {
	consider := func(t time.Time, do func(time.Time)) {
		if happen == nil || t.Before(at) {
			at, happen = t, do
		}
	}
	if t, ok := m.script.next(); ok {
		consider(t, m.nodeStep)
	}
	if !m.nextSweep.IsZero() {
		consider(m.nextSweep, m.sweep)
	}
	if !m.nextLate.IsZero() {
		consider(m.nextLate, m.miss)
	}
	if m.silentUntil.After(m.now) {
		consider(m.silentUntil, m.wake)
		return at, happen
	}
	if m.dead {
		return at, happen
	}
	for _, h := range m.holds {
		consider(h.until, m.settle)
	}
	if t, do := m.dueToServers(); do != nil {
		consider(t, do)
	}
	return at, happen
}

// dueToServers is what is due to a server first. What is due to several at once happens to them in the order
// of their keys.
func (m *Machine) dueToServers() (at time.Time, happen func(time.Time)) {
	var first Key
	for k, s := range m.servers {
		t, do := m.dueTo(s)
		if do == nil || happen != nil && (t.After(at) || t.Equal(at) && k.compare(first) > 0) {
			continue
		}
		at, happen, first = t, do, k
	}
	return at, happen
}

// dueTo is what is due to a server first.
func (m *Machine) dueTo(s *server) (at time.Time, happen func(time.Time)) {
	if t, ok := s.script.next(); ok && (s.budget > 0 || m.starves(s)) {
		at, happen = t, func(now time.Time) { m.podStep(s, now) }
	}
	if t, ok := m.recovery(s); ok && (happen == nil || t.Before(at)) {
		at, happen = t, func(now time.Time) { m.recover(s, now) }
	}
	if s.wants {
		if t := s.nextRelease(m.now.Add(1)); happen == nil || t.Before(at) {
			at, happen = t, m.settle
		}
	}
	return at, happen
}

// wake ends a silence. What happened to containers meanwhile nobody has seen.
func (m *Machine) wake(now time.Time) {
	for _, s := range m.servers {
		if s.script != nil {
			s.script.skip(now)
		}
	}
	m.settle(now)
}

// nodeStep does the next step of the node's script.
func (m *Machine) nodeStep(now time.Time) {
	step := m.script.take()
	switch step.Verb {
	case Pressure:
		m.percentEach = 0
		m.press(int32(step.Number), now)
	case PressureEach:
		m.percentEach = step.Number
		m.pressEach(now)
	case Late:
		m.beginLate(step.For, now)
	case Granularity:
		m.granularity = step.Number
		for i := range m.cores {
			m.cores[i].Granularity = step.Number
		}
	case Silent:
		m.silentUntil = now.Add(step.For)
	case Drift:
		if until := now.Add(step.For); now.After(m.since) {
			m.driftUntil = maxTime(m.driftUntil, until)
			m.sweep(now)
		}
	}
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
