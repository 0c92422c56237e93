package actuator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// ProbeOptions say where a backend is looked for.
type ProbeOptions struct {
	Host host.Host
	// Want is a backend's name; empty takes the best that works.
	Want string
	// StateDir holds the journal. It must stay when the process ends, but not when the machine reboots.
	StateDir string
	// Cores that take real-time work.
	Cores []int
	// Now is a monotonic clock, in nanoseconds, that goes on from process to process.
	Now func() int64
	// Governed says that servers were promised something already, whether or not their groups are there yet. See Start.
	Governed bool
	// Step is told what is done next, before anything that may take long; it may be nil.
	Step func(what string)

	// in tests
	kernel  kernel
	measure func(context.Context, Backend, int) (int64, error)
}

// Finding is why a backend was taken or not.
type Finding struct {
	Backend string
	Taken   bool
	// Reason in a sentence; Fix says what would have it work, empty where nothing here would.
	Reason, Fix string
}

func (f Finding) String() string {
	text := f.Backend + ": " + f.Reason
	if f.Fix != "" {
		text += " (" + f.Fix + ")"
	}
	return text
}

// refusal is why a backend cannot work.
type refusal struct{ reason, fix string }

func (r refusal) Error() string { return r.reason }

// full is the refusal of a backend that would work if there were bandwidth left to try it with.
type full struct{ refusal }

func (f full) Unwrap() []error { return []error{f.refusal, ErrNoRoom} }

// candidate is a backend that may be taken.
type candidate struct {
	name string
	// build looks for what the backend needs, and changes nothing but scratch groups. trial has the kernel do once what
	// the backend will ask of it.
	build func(*machine) (b Backend, trial func() error, err error)
	// wrote says that a record of the journal is of a change that this backend makes, and those of lower preference do not.
	wrote func(record) bool
}

// candidates in order of preference.
func candidates() []candidate {
	file := func(names ...string) func(record) bool {
		return func(r record) bool { return slices.Contains(names, r.File) }
	}
	return []candidate{
		{HCBS, buildHCBS, file(rtMax, rtMulti)},
		{RTGroup, buildRTGroup, file(rtRuntime)},
		{FIFO, buildFIFO, file()},
		{Deadline, buildDeadline, func(r record) bool { return r.Thread != 0 }},
		{CFS, buildCFS, file()},
	}
}

// names of the candidates, in their order.
func names() []string {
	var out []string
	for _, c := range candidates() {
		out = append(out, c.name)
	}
	return out
}

// take tries a candidate out. Where it fails only for want of bandwidth, and the journal has groups that a former process
// gave theirs by the same files, those are the proof that it works.
func (c candidate) take(m *machine) (Backend, Finding, error) {
	b, trial, err := c.build(m)
	if err != nil {
		return nil, finding(c.name, err), err
	}
	err = trial()
	if errors.Is(err, ErrNoRoom) && m.governed(c.wrote) {
		reason := b.Guarantee() + "; not tried, for its groups are in force already and hold all bandwidth"
		return b, Finding{Backend: c.name, Taken: true, Reason: reason}, nil
	}
	if err != nil {
		return nil, finding(c.name, err), err
	}
	return b, Finding{Backend: c.name, Taken: true, Reason: b.Guarantee()}, nil
}

// Probe takes the best backend that works, or the one that is wanted, and says why it did not take those
// before it. Where none works the backend is Blocked, which refuses everything and says why. The error is for a
// machine that cannot be probed, and a wanted backend that does not work.
func Probe(o ProbeOptions) (Backend, []Finding, error) {
	m, err := newMachine(o)
	if err != nil {
		return nil, nil, fmt.Errorf("probing backends: %w", err)
	}
	return m.probe(o.Want)
}

func (m *machine) probe(want string) (Backend, []Finding, error) {
	var findings []Finding
	var wanted error
	for _, c := range candidates() {
		if want != "" && want != c.name {
			continue
		}
		m.step("trying backend " + c.name)
		b, found, err := c.take(m)
		findings = append(findings, found)
		if err == nil {
			return b, findings, nil
		}
		wanted = err
	}
	switch {
	case want == "":
		return newBlocked(m, findings), findings, nil
	case !slices.Contains(names(), want):
		return nil, nil, fmt.Errorf("backend %q; want one of %s", want, strings.Join(names(), ", "))
	}
	return nil, findings, fmt.Errorf("probing backend %s: %w", want, wanted)
}

func finding(name string, err error) Finding {
	f := Finding{Backend: name, Reason: err.Error()}
	var r refusal
	if errors.As(err, &r) {
		f.Fix = r.fix
	}
	return f
}

func newMachine(o ProbeOptions) (*machine, error) {
	cg, err := o.Host.Cgroups()
	if err != nil {
		return nil, err
	}
	k := o.kernel
	if k == nil {
		k = linux{o.Host}
	}
	step := o.Step
	if step == nil {
		step = func(string) {}
	}
	boot, err := os.ReadFile(o.Host.Proc("sys", "kernel", "random", "boot_id"))
	if err != nil {
		return nil, fmt.Errorf("reading the boot's ID: %w", err)
	}
	j, err := openJournal(o.StateDir, strings.TrimSpace(string(boot)))
	if err != nil {
		return nil, err
	}
	m := &machine{
		host: o.Host, cg: cg, kernel: k, journal: j, now: o.Now, cores: o.Cores,
		rooms: map[string]room{}, came: map[string]int64{}, failed: map[string]int64{}, making: map[uint64]*makers{}, scratch: scratchName, step: step,
	}
	m.expected()
	return m, nil
}
