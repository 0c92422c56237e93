package standalone

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/agent/lean"
	"github.com/mainspring-rt/mainspring/pkg/agent/sole"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/process"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// Options of a run; all but Duration and Samples are required.
type Options struct {
	File File
	// Fastpath is the program that keeps budgets.
	Fastpath string
	// Launcher is the program, and its first arguments, that calls Launch for a command.
	Launcher []string
	// StateDir is for the fast path's state, its socket, and the logs of all processes. Whoever uses it again
	// after a crash also finishes putting back what the crash left.
	StateDir string
	// Duration until everything is stopped; 0: until the commands end or the context does.
	Duration time.Duration
	// Samples is how many reactions the fast path keeps for each core.
	Samples int
	Host    host.Host
	Clock   clock.WithTicker
	// Show is called with every report, about once a second.
	Show func(table.Report, time.Duration)
	// Say is called with what somebody should know beside the reports, a line each time.
	Say func(string)
}

// Socket is where the fast path of a run answers.
func Socket(stateDir string) string { return filepath.Join(stateDir, "fastpath.sock") }

// Waits.
const (
	aloneTimeout = time.Second
	startTimeout = 30 * time.Second
	stopTimeout  = 30 * time.Second
	pollEvery    = 50 * time.Millisecond
	showEvery    = time.Second
	trimEvery    = 10 // reports: what starting and they needed is given back
	fastStop     = 5 * time.Second
	// budgetTimeout is longer than any period: what an earlier run promised is over then.
	budgetTimeout = time.Duration(rt.MaxPeriod)*time.Microsecond + 5*time.Second
)

// Run governs the servers of a file until its commands end, the duration is over, or the context ends, and puts
// everything back. It returns the last report before that.
func Run(ctx context.Context, o Options) (last table.Report, err error) {
	lock, err := o.lock(ctx)
	if err != nil {
		return last, err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	left, err := load(o.notePath())
	if err != nil {
		return last, err
	}
	fast := client.New(Socket(o.StateDir))
	if err := o.alone(ctx, fast); err != nil {
		return last, err
	}
	child, err := process.Start(process.Command{
		Name: "fastpath", Path: o.Fastpath, Args: arguments(o), Log: filepath.Join(o.StateDir, "fastpath.log"),
	})
	if err != nil {
		return last, err
	}
	defer func() { err = errors.Join(err, child.Stop(fastStop)) }()
	node, err := o.await(ctx, fast, child)
	if err != nil {
		return last, err
	}
	if node, err = o.undo(ctx, fast, left, node); err != nil {
		return node, fmt.Errorf("putting back what an earlier run left, which %s lists: %w", o.notePath(), err)
	}
	return o.govern(ctx, fast, child, node)
}

// lock keeps the state directory to this run: another would undo what this one does.
func (o Options) lock(ctx context.Context) (*sole.Lock, error) {
	lock, err := sole.Take(ctx, o.StateDir, "standalone.lock", sole.Waiting{Clock: o.Clock, Begins: func(holder string) {
		o.Say(fmt.Sprintf("%s uses %s; waiting for it to end", holder, o.StateDir))
	}})
	var held *sole.HeldError
	if errors.As(err, &held) {
		return nil, fmt.Errorf("another run uses the state directory %s; stop it first, or use another directory: %w", o.StateDir, err)
	}
	return lock, err
}

// alone waits until nobody answers at our socket. The fast path of a run that was killed ends a moment after it.
func (o Options) alone(ctx context.Context, fast *client.Client) error {
	for began := o.Clock.Now(); answers(ctx, fast); <-o.Clock.After(pollEvery) {
		if o.Clock.Since(began) > aloneTimeout {
			return fmt.Errorf("a fast path answers at %s already; stop it first, or use another state directory", Socket(o.StateDir))
		}
	}
	return nil
}

func answers(ctx context.Context, fast *client.Client) bool {
	_, err := fast.Report(ctx)
	return err == nil
}

func arguments(o Options) []string {
	args := []string{"--socket=" + Socket(o.StateDir), "--state-dir=" + o.StateDir, "--root=" + o.Host.Root()}
	if o.File.Backend != "" {
		args = append(args, "--backend="+o.File.Backend)
	}
	if o.File.Cores != "" {
		args = append(args, "--cores="+string(o.File.Cores))
	}
	if o.File.Lead != nil {
		args = append(args, "--lead="+microseconds(*o.File.Lead))
	}
	if o.File.ChargeGranularity != nil {
		args = append(args, "--charge-granularity="+microseconds(*o.File.ChargeGranularity))
	}
	if o.Samples > 0 {
		args = append(args, "--samples="+strconv.Itoa(o.Samples))
	}
	return args
}

func microseconds(d Duration) string { return strconv.FormatInt(int64(d), 10) + "us" }

// await waits until the fast path answers.
func (o Options) await(ctx context.Context, fast *client.Client, child *process.Process) (table.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		report, err := fast.Report(ctx)
		if err == nil {
			return report, nil
		}
		select {
		case <-child.Exited():
			return report, child.Died()
		case <-ctx.Done():
			return report, fmt.Errorf("waiting for the fast path: %w; the end of its log:\n%s", err, child.Tail())
		case <-o.Clock.After(pollEvery):
		}
	}
}

// govern admits, starts, watches, and puts back.
func (o Options) govern(ctx context.Context, fast *client.Client, child *process.Process, node table.Report) (last table.Report, err error) {
	admitted, err := Admit(o.File, node, Group)
	if err != nil {
		return node, err
	}
	p, err := o.processes(note{Identity: actuator.IdentityOf(o.Host, node.Backend)})
	if err != nil {
		return node, err
	}
	p.real = node.Backend != actuator.CFS && node.Backend != actuator.Deadline
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		err = errors.Join(err, p.stop(), p.putBack(ctx, fast, node.Backend))
	}()
	if err := p.makeGroups(o.File, admitted); err != nil {
		return node, err
	}
	if err := fast.Apply(ctx, admitted); err != nil {
		return node, fmt.Errorf("putting the servers in force: %w", err)
	}
	if last, err = o.awaitBudgets(ctx, fast, admitted); err != nil {
		return last, err
	}
	if err := p.start(o.File, admitted); err != nil {
		return last, err
	}
	last, err = o.watch(ctx, fast, child, p)
	return last, errors.Join(err, p.failures())
}

func (o Options) processes(n note) (*processes, error) {
	local, err := actuator.NewLocal(o.Host, n.Identity)
	if err != nil {
		return nil, err
	}
	return &processes{say: o.Say, local: local, clock: o.Clock, launcher: o.Launcher, logs: o.StateDir, note: n, path: o.notePath()}, nil
}

// notePath is where a run says what is to be undone.
func (o Options) notePath() string { return filepath.Join(o.StateDir, "undo.json") }

// undo does what is left to do of a run that did not come to its end, and reports what the node offers after that. Where its fast path died first, only
// that has something left: the table that it kept.
func (o Options) undo(ctx context.Context, fast *client.Client, left *note, node table.Report) (table.Report, error) {
	if left == nil && len(node.Servers) == 0 {
		return node, nil
	}
	if err := o.finish(ctx, fast, left, node.Backend); err != nil {
		return node, err
	}
	return fast.Report(ctx)
}

func (o Options) finish(ctx context.Context, fast *client.Client, left *note, backend string) error {
	if left == nil {
		return fast.Restore(ctx)
	}
	p, err := o.processes(*left)
	if err != nil {
		return err
	}
	return p.putBack(ctx, fast, backend)
}

// awaitBudgets waits until the budget of every server is in force: the room may be promised until a period of an
// earlier run is over.
func (o Options) awaitBudgets(ctx context.Context, fast *client.Client, t table.Table) (table.Report, error) {
	for began := o.Clock.Now(); ; {
		last, err := fast.Report(ctx)
		if err != nil {
			return last, err
		}
		refused, missing := unfunded(last, t)
		if missing == nil || refused {
			return last, missing
		}
		if o.Clock.Since(began) > budgetTimeout {
			return last, fmt.Errorf("waiting %s for budgets: %w", budgetTimeout, missing)
		}
		<-o.Clock.After(pollEvery)
	}
}

// unfunded says which servers have less than their low budgets. Refused: waiting is of no use.
func unfunded(r table.Report, t table.Table) (refused bool, missing error) {
	var faults []error
	for _, want := range t.Servers {
		s := find(r, want.ID)
		switch {
		case s.Error != "":
			faults = append(faults, fmt.Errorf("server %q: %s", want.ID, s.Error))
			refused = refused || !s.Waiting
		case s.LevelUs < want.LowUs:
			faults = append(faults, fmt.Errorf("server %q: a budget of %d us is granted; want at least %d us", want.ID, s.LevelUs, want.LowUs))
		case s.BudgetUs == 0 && r.Backend != actuator.Deadline: // whose groups have none: it is their threads'
			faults = append(faults, fmt.Errorf("server %q: no budget is in force; want at least %d us", want.ID, want.LowUs))
		}
	}
	return refused, errors.Join(faults...)
}

// watch shows reports until there is nothing left to watch.
func (o Options) watch(ctx context.Context, fast *client.Client, child *process.Process, p *processes) (last table.Report, err error) {
	began := o.Clock.Now()
	ticker := o.Clock.NewTicker(showEvery)
	defer ticker.Stop()
	var over <-chan time.Time
	if o.Duration > 0 {
		over = o.Clock.After(o.Duration)
	}
	shown := 0
	for ended := false; ; shown++ {
		if shown%trimEvery == 0 {
			_ = lean.Trim(true) // a failure costs memory, nothing else
		}
		now, err := fast.Report(context.WithoutCancel(ctx))
		if err != nil {
			return last, err
		}
		last = now
		o.Show(last, o.Clock.Since(began))
		if ended || p.ended() {
			return last, nil
		}
		select {
		case <-ctx.Done():
			ended = true
		case <-over:
			ended = true
		case <-child.Exited():
			return last, child.Died()
		case <-ticker.C():
		}
	}
}
