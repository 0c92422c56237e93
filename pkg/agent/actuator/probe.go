package actuator

import (
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
	// StateDir holds the journal, and must outlive the process but not the machine's uptime.
	StateDir string
	// Cores that take real-time work.
	Cores []int
	// Now is a monotonic clock, in nanoseconds.
	Now func() int64

	kernel kernel // in tests
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

// candidate is a backend that may be taken.
type candidate struct {
	name string
	try  func(*machine) (Backend, error)
}

// candidates in order of preference.
func candidates() []candidate {
	return []candidate{
		{HCBS, probeHCBS},
		{RTGroup, probeRTGroup},
		{FIFO, probeFIFO},
		{Deadline, probeDeadline},
		{CFS, probeCFS},
	}
}

// Probe takes the best backend that works, or the one that is wanted, and says why it did not take those
// before it. Where none works the backend is Blocked, which refuses everything and says why. The error is for a
// machine that cannot be probed, and a wanted backend that does not work.
func Probe(o ProbeOptions) (Backend, []Finding, error) {
	m, err := newMachine(o)
	if err != nil {
		return nil, nil, fmt.Errorf("probing backends: %w", err)
	}
	var findings []Finding
	var known []string
	var wanted error
	for _, c := range candidates() {
		known = append(known, c.name)
		if o.Want != "" && o.Want != c.name {
			continue
		}
		b, err := c.try(m)
		if err == nil {
			return b, append(findings, Finding{Backend: c.name, Taken: true, Reason: b.Guarantee()}), nil
		}
		findings, wanted = append(findings, finding(c.name, err)), err
	}
	switch {
	case o.Want == "":
		return newBlocked(m, findings), findings, nil
	case !slices.Contains(known, o.Want):
		return nil, nil, fmt.Errorf("backend %q; want one of %s", o.Want, strings.Join(known, ", "))
	}
	return nil, findings, fmt.Errorf("probing backend %s: %w", o.Want, wanted)
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
		rooms: map[string]Server{}, came: map[string]int64{}, failed: map[string]int64{}, scratch: scratchName,
	}
	m.expected()
	return m, nil
}
