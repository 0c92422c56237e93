// Package doctor examines a node before it takes real-time work: what was read where, what it means, and how
// to mend it. It changes nothing. The checks are a list; each is a function of what it reads.
package doctor

import (
	"errors"
	"fmt"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/cores"
	"github.com/mainspring-rt/mainspring/pkg/host"
)

// Severity of a finding.
type Severity string

// What a finding asks for: nothing, nothing but to be known, to be mended for good latencies, to be mended
// before real-time work runs at all as promised.
const (
	OK      Severity = "ok"
	Note    Severity = "note"
	Warning Severity = "warning"
	Problem Severity = "problem"
)

// Finding is the answer of a check.
type Finding struct {
	// Name of the check, as in the list of docs/doctor.md.
	Name     string   `json:"name"`
	Severity Severity `json:"severity"`
	// Read is what the answer rests on.
	Read []Reading `json:"read"`
	// Means says what follows from it.
	Means string `json:"means"`
	// Mend says how to change it; empty when there is nothing to mend.
	Mend string `json:"mend,omitempty"`
}

// Reading is what was found at a place.
type Reading struct {
	Where string `json:"where"`
	What  string `json:"what"`
}

// Report is everything that was found.
type Report struct {
	// Kernel is the release.
	Kernel string `json:"kernel"`
	// Backend is the best one that this machine offers as far as can be read; the agent tries it at start.
	Backend string `json:"backend"`
	// Cores that would take real-time work, in the kernel's format of a list.
	Cores string `json:"cores"`
	// Findings in the order of the checks.
	Findings []Finding `json:"findings"`
	// Counts of findings by severity.
	Counts map[Severity]int `json:"counts"`
}

// Options of an examination.
type Options struct {
	Host host.Host
	// Cores and Reserved are the agent's flags --cores and --reserved-cores.
	Cores, Reserved string
	// Granularity is the controller's flag --rt-budget-granularity; 0 when it is not known.
	Granularity time.Duration
	// Programs loads and attaches the agent's programs for a moment; nil leaves that out. It is asked once.
	Programs func(cores []int) (Programs, error)
	// Denied says that an error of Programs is about missing rights, and not about the kernel.
	Denied func(error) bool
}

// Programs is what became of the agent's programs when they were tried.
type Programs struct {
	// Hook that sees overruns, and Notes about what the kernel lacks.
	Hook  string
	Notes []string
	// Fentry is why no program can be put at the entry of a kernel function; nil when one can.
	Fentry error
}

// check is one of the list.
type check struct {
	name string
	run  func(*exam) Finding
}

// checks in the order in which a node is set up: machine, kernel, groups, cores, programs, rights, cluster.
func checks() []check {
	return []check{
		{"cpus", (*exam).cpus},
		{"kernel", (*exam).kernel},
		{"preempt-rt", (*exam).preemptRT},
		{"control-groups", (*exam).controlGroups},
		{"rt-group-sched", (*exam).rtGroups},
		{"kubepods-budget", (*exam).kubepodsBudget},
		{"group-access", (*exam).groupAccess},
		{"tick", (*exam).tick},
		{"hrtick", (*exam).hrtick},
		{"granularity", (*exam).granularity},
		{"rt-limit", (*exam).rtLimit},
		{"fair-server", (*exam).fairServer},
		{"ext-server", (*exam).extServer},
		{"capacity", (*exam).capacity},
		{"pressure", (*exam).pressure},
		{"isolation", (*exam).isolation},
		{"tick-stop", (*exam).tickStop},
		{"interrupts", (*exam).interrupts},
		{"frequency", (*exam).frequency},
		{"idle-states", (*exam).idleStates},
		{"smt", (*exam).smt},
		{"btf", (*exam).btf},
		{"tracepoints", (*exam).tracepoints},
		{"fentry", (*exam).fentry},
		{"lockdown", (*exam).lockdown},
		{"programs", (*exam).loading},
		{"cap-bpf", capability(host.CapBPF)},
		{"cap-perfmon", capability(host.CapPerfmon)},
		{"cap-sys-nice", capability(host.CapSysNice)},
		{"cap-ipc-lock", capability(host.CapIPCLock)},
		{"memlock", (*exam).memlock},
		{"runtime", (*exam).runtime},
		{"nri", (*exam).nri},
		{"checkpoint", (*exam).checkpoint},
		{"cpu-manager", (*exam).cpuManager},
	}
}

// ErrOptions is wrapped by errors that say that there is nothing to examine as it was asked for.
var ErrOptions = errors.New("cannot examine that")

// Examine runs every check. The error is ErrOptions, for cores that cannot be chosen so, or for what is no machine;
// what cannot be read otherwise is a finding.
func Examine(o Options) (Report, error) {
	topology, err := o.Host.Topology()
	if err != nil {
		return Report{}, fmt.Errorf("%w: %s: %w", ErrOptions, o.Host.Root(), err)
	}
	choice, err := cores.Choose(topology, o.Cores, o.Reserved)
	if err != nil {
		return Report{}, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	e := newExam(o, topology, choice.Cores)
	report := Report{
		Kernel: e.release, Backend: e.backend(), Cores: host.FormatCPUList(choice.Cores),
		Counts: map[Severity]int{OK: 0, Note: 0, Warning: 0, Problem: 0},
	}
	for _, c := range checks() {
		f := c.run(e)
		f.Name = c.name
		report.Findings = append(report.Findings, f)
		report.Counts[f.Severity]++
	}
	return report, nil
}

// Names of the checks, in order.
func Names() []string {
	var names []string
	for _, c := range checks() {
		names = append(names, c.name)
	}
	return names
}

func ok(means string) Finding { return Finding{Severity: OK, Means: means} }

func note(means, mend string) Finding { return Finding{Severity: Note, Means: means, Mend: mend} }

func warning(means, mend string) Finding { return Finding{Severity: Warning, Means: means, Mend: mend} }

func problem(means, mend string) Finding { return Finding{Severity: Problem, Means: means, Mend: mend} }

// saw adds what the finding rests on.
func (f Finding) saw(readings ...Reading) Finding {
	f.Read = append(f.Read, readings...)
	return f
}
