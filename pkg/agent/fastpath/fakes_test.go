package fastpath_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// kernel is a machine of one pot of groups: what the engine opens, sets and reads goes here.
type kernel struct {
	mu         sync.Mutex
	groups     map[string]*group // by path
	openErrs   map[string]error
	enforce    bool
	fixed      bool // its groups cannot be resized
	opening    func(actuator.Server)
	reserved   bool
	spared     []string
	restored   int
	sweeps     atomic.Int32
	log        []string
	roomErr    error
	roomFor    int64 // the largest first budget; 0: any
	restoreErr error
	source     uint32
	policy     string
	unenforced error
}

func newKernel(paths ...string) *kernel {
	k := &kernel{groups: map[string]*group{}, openErrs: map[string]error{}}
	for i, p := range paths {
		k.groups[p] = &group{k: k, path: p, id: uint64(100 + i), core: -1}
	}
	return k
}

// change is how a test changes the machine while the engine may sweep.
func (k *kernel) change(do func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	do()
}

func (k *kernel) note(format string, args ...any) {
	k.log = append(k.log, fmt.Sprintf(format, args...))
}

func (k *kernel) Name() string          { return "fake" }
func (k *kernel) Guarantee() string     { return "none" }
func (k *kernel) Source() uint32        { return k.source }
func (k *kernel) Identity() string      { return actuator.IdentityCPU }
func (k *kernel) Policy() string        { return cmp.Or(k.policy, actuator.PolicyFixed) }
func (k *kernel) ReservedOnly() bool    { return k.reserved }
func (k *kernel) Unenforced() error     { return k.unenforced }
func (k *kernel) Spare(groups []string) { k.spared = groups }
func (k *kernel) InForce(path string) (actuator.Budget, []int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := k.groups[path]
	switch {
	case g == nil:
		return actuator.Budget{}, nil, actuator.ErrGone
	case k.enforce:
		return actuator.Budget{}, nil, nil
	}
	return actuator.Budget{RuntimeUs: g.budgetUs, PeriodUs: cmp.Or(g.periodUs, 10_000)}, []int{g.core}, nil
}
func (k *kernel) Sweep() ([]string, error) { k.sweeps.Add(1); return nil, nil }
func (k *kernel) Restore() error {
	if k.restoreErr == nil {
		k.restored++
	}
	return k.restoreErr
}

func (k *kernel) Capacity(cores []int) map[int]int64 {
	out := map[int]int64{}
	for _, c := range cores {
		out[c] = 900_000
	}
	return out
}

func (k *kernel) Room(s actuator.Server) (table.First, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s.BudgetUs < 0 || s.BudgetUs > s.HighUs {
		return table.First{}, fmt.Errorf("budgetUs %d; want 0 to highUs, %d", s.BudgetUs, s.HighUs) // as every backend does
	}
	if k.roomFor > 0 && s.BudgetUs > k.roomFor {
		return table.First{}, fmt.Errorf("making room: %w", actuator.ErrNoRoom)
	}
	if k.roomErr == nil {
		k.note("room for %s in %s", s.ID, s.Cgroup)
	}
	return table.First{RuntimeUs: s.BudgetUs, PeriodUs: s.PeriodUs}, k.roomErr
}

func (k *kernel) Open(s actuator.Server) (actuator.Group, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.openErrs[s.Cgroup]; err != nil {
		return nil, err
	}
	g := k.groups[s.Cgroup]
	if g == nil {
		return nil, actuator.ErrGone
	}
	k.note("open %s on %d", s.Cgroup, s.Core)
	switch {
	case s.BudgetUs > 0 || k.enforce: // as fifo, which knows of no other
		g.budgetUs = s.BudgetUs
	case g.periodUs > 0:
		g.budgetUs = min(g.budgetUs*s.PeriodUs/g.periodUs, s.HighUs)
	}
	g.core, g.periodUs, g.highUs = s.Core, s.PeriodUs, s.HighUs
	if k.opening != nil {
		k.opening(s)
	}
	switch {
	case k.enforce:
		return &enforced{g}, nil
	case k.fixed:
		return &fixed{g}, nil
	}
	return g, nil
}

type group struct {
	k                  *kernel
	path               string
	id                 uint64
	core               int
	budgetUs, periodUs int64
	sets               int
	highUs             int64
	setErr, checkErr   error
	moveErr, resizeErr error
	drift              []string
	closed, restored   bool
	throttled          bool
	below, realtime    int
	counting           func() // called while its threads are counted
	moving             func() // called before it moves
	setting            func() // called before its budget is set
}

func (g *group) ID() uint64 { return g.id }
func (g *group) Set(us int64) error {
	if g.setErr != nil {
		return g.setErr
	}
	if g.setting != nil {
		g.setting()
	}
	g.sets++
	g.budgetUs = us
	return nil
}
func (g *group) Read() (actuator.Budget, []int, error) {
	return actuator.Budget{RuntimeUs: g.budgetUs, PeriodUs: g.periodUs}, []int{g.core}, nil
}
func (g *group) Move(core int) error {
	g.k.note("move %s to %d", g.path, core)
	if g.moving != nil {
		g.moving()
	}
	if g.moveErr == nil {
		g.core = core
	}
	return g.moveErr
}
func (g *group) Check() ([]string, error) {
	g.k.mu.Lock()
	defer g.k.mu.Unlock()
	return g.drift, g.checkErr
}
func (g *group) Threads() (all, realtime int, err error) {
	realtime = g.realtime
	if g.counting != nil {
		g.counting()
	}
	return 3, realtime, nil
}
func (g *group) Below() (int, error) { return g.below, nil }
func (g *group) Close(restore bool) error {
	g.k.note("close %s %v", g.path, restore)
	g.closed, g.restored = true, restore
	return nil
}

// enforced is a group whose budget the fast path enforces.
type enforced struct{ *group }

func (e *enforced) Throttle() error { e.throttled = true; return nil }
func (e *enforced) Replenish() error {
	if e.closed {
		return actuator.ErrGone
	}
	e.throttled = false
	return nil
}

// programs stand in for those in the kernel.
type programs struct {
	configs  [table.MaxServers]ebpf.Config
	states   [table.MaxServers]ebpf.State
	slots    map[uint64]int
	waited   map[int]ebpf.Histogram
	rings    map[int]*ring
	trackErr error
	closed   atomic.Bool
}

func newPrograms() *programs {
	return &programs{slots: map[uint64]int{}, waited: map[int]ebpf.Histogram{}, rings: map[int]*ring{}}
}

func (p *programs) Hook() string                     { return "fake" }
func (p *programs) Notes() []string                  { return []string{"nothing is real"} }
func (p *programs) Config(slot int) *ebpf.Config     { return &p.configs[slot] }
func (p *programs) State(slot int) *ebpf.State       { return &p.states[slot] }
func (p *programs) RunQueue(slot int) ebpf.Histogram { return p.waited[slot] }
func (p *programs) ForgetRunQueue(slot int)          { delete(p.waited, slot) }
func (p *programs) Close() error                     { p.closed.Store(true); return nil }
func (p *programs) Lost() uint64                     { return 7 }

func (p *programs) Unseen() uint64 { return 5 }
func (p *programs) Track(id uint64, slot int) error {
	p.slots[id] = slot
	return p.trackErr
}
func (p *programs) Untrack(id uint64) error { delete(p.slots, id); return nil }
func (p *programs) Ring(core int) (fastpath.Ring, error) {
	p.rings[core] = &ring{
		events: make(chan ebpf.Event), closed: make(chan struct{}), deadline: make(chan struct{}), waits: make(chan struct{}, 1),
	}
	return p.rings[core], nil
}

// event of a server, with the slot and generation that it has now.
func (p *programs) event(id uint64, kind uint32, at int64) ebpf.Event {
	slot := p.slots[id]
	used := p.configs[slot].AlarmNs
	if kind == ebpf.KindEnd || kind == ebpf.KindAgain {
		used = p.configs[slot].BudgetNs
	}
	return ebpf.Event{
		UsedNs: used,
		Slot:   uint32(slot), Generation: p.configs[slot].Generation, Kind: kind, Instant: uint64(at), Detected: uint64(at),
		Window: uint64(at) - uint64(at)%10_000_000,
	}
}

// ring hands events over one by one, and tells each time that its thread waits for one.
type ring struct {
	waits    chan struct{}
	events   chan ebpf.Event
	deadline chan struct{}
	closed   chan struct{}
	once     sync.Once
	woken    atomic.Int32
	held     atomic.Bool
	until    atomic.Int64
}

func (r *ring) SetDeadline(at int64) { r.until.Store(at) }
func (r *ring) Hold(on bool)         { r.held.Store(on) }
func (r *ring) Wake()                { r.woken.Add(1) }
func (r *ring) Close() error         { r.once.Do(func() { close(r.closed) }); return nil }
func (r *ring) Next(e *ebpf.Event) error {
	select {
	case r.waits <- struct{}{}:
	case <-r.closed:
		return os.ErrClosed
	}
	select {
	case *e = <-r.events:
		return nil
	case <-r.deadline:
		return ebpf.ErrDeadline
	case <-r.closed:
		return os.ErrClosed
	}
}

// node is an engine that runs on fakes, at a time that the test sets.
type node struct {
	*fastpath.Engine
	t        *testing.T
	kernel   *kernel
	programs *programs
	now      atomic.Int64
	dir      string
	stop     context.CancelFunc
	ended    chan error
}

func start(t *testing.T, k *kernel, dir string) *node {
	t.Helper()
	n := newNode(t, k, dir)
	n.begin()
	return n
}

// startOn starts a fast path that has only these cores, long after another.
func startOn(t *testing.T, k *kernel, dir string, cores ...int) *node {
	t.Helper()
	n := newNodeOn(t, k, dir, 100_000_000_000, cores...)
	n.begin()
	return n
}

func (n *node) begin() {
	_ = n.Resume() // tests that need it look at the report
	ctx, stop := context.WithCancel(n.t.Context())
	n.stop = stop
	go func() { n.ended <- n.Run(ctx, nil) }()
	n.t.Cleanup(n.end)
}

// newNode is an engine that does not run yet.
func newNode(t *testing.T, k *kernel, dir string) *node {
	t.Helper()
	return newNodeOn(t, k, dir, 1_000_000_000, 0, 1)
}

func newNodeOn(t *testing.T, k *kernel, dir string, now int64, cores ...int) *node {
	t.Helper()
	n := &node{t: t, kernel: k, programs: newPrograms(), dir: dir, ended: make(chan error, 1)}
	n.now.Store(now)
	engine, err := fastpath.New(fastpath.Options{
		Backend: k, Programs: n.programs, Cores: cores, GranularityUs: 100, ChargeUs: 100, Lead: 200 * time.Microsecond, StateDir: dir,
		Now: n.now.Load, Wall: func() int64 { return 5_000_000_000_000 + n.now.Load() },
		Instance: "one", Version: "test", Samples: 4, RunQueue: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	n.Engine = engine
	return n
}

// end stops the engine as a signal does.
func (n *node) end() {
	n.stop()
	select {
	case err := <-n.ended:
		if err != nil && !errors.Is(err, context.Canceled) {
			n.t.Errorf("the engine ended with %v", err)
		}
		n.ended <- nil
	case <-time.After(30 * time.Second):
		n.t.Error("the engine does not end")
	}
}

func (n *node) sweep() { n.Sweep() }

// send has a core's thread handle an event, and returns when it has.
func (n *node) send(core int, e ebpf.Event) {
	n.t.Helper()
	r := n.programs.rings[core]
	hand(n.t, r.events, e)
	n.handled(r)
}

// wake has a core's thread look at the time.
func (n *node) wake(core int) {
	n.t.Helper()
	r := n.programs.rings[core]
	hand(n.t, r.deadline, struct{}{})
	n.handled(r)
}

// handled waits until a thread waits again: what it waited for before was told, too.
func (n *node) handled(r *ring) {
	n.t.Helper()
	<-r.waits
	select {
	case <-r.waits:
		r.waits <- struct{}{}
	case <-time.After(30 * time.Second):
		n.t.Fatal("the thread does not come back")
	}
}

func hand[T any](t *testing.T, to chan<- T, what T) {
	t.Helper()
	select {
	case to <- what:
	case <-time.After(30 * time.Second):
		t.Fatal("the thread does not read")
	}
}

func (n *node) apply(t table.Table) {
	n.t.Helper()
	if err := n.Apply(t); err != nil {
		n.t.Fatal(err)
	}
}

// reported is the report of a server.
func (n *node) reported(id string) table.ServerReport {
	n.t.Helper()
	for _, s := range n.Report().Servers {
		if s.ID == id {
			return s
		}
	}
	n.t.Fatalf("no server %s in the report", id)
	return table.ServerReport{}
}

// high is a server of 2 ms, 4 ms when raised, in 10 ms.
func high(id, cgroup string, core int) table.Server {
	return table.Server{
		ID: id, Cgroup: cgroup, ContainerID: "c-" + id, Criticality: "High", PeriodUs: 10_000, DeadlineUs: 10_000, LowUs: 2_000, HighUs: 4_000,
		LeastUs: 2_000, Core: core, Mode: table.Elastic, Overruns: 1, Periods: 1, DwellUs: 50_000,
	}
}

// tableOf raises all its servers as the plans of both cores allow.
func tableOf(generation int64, servers ...table.Server) table.Table {
	out := table.Table{Generation: generation, Servers: servers, Plans: []table.Plan{{Core: 0, ThresholdPpm: 900_000}, {Core: 1, ThresholdPpm: 900_000}}}
	for _, s := range servers {
		if s.Core < 2 && s.Criticality != "Low" {
			out.Plans[s.Core].Raise = append(out.Plans[s.Core].Raise, table.Raise{ID: s.ID, ToUs: s.HighUs})
		}
	}
	return out
}
