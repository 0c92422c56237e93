package standalone

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// MaxFile is the longest file that is read, in bytes.
const MaxFile = 1 << 20

// File says what to govern.
type File struct {
	// Backend enforces budgets: hcbs, rtgroup, fifo, deadline or cfs; empty is the best that works.
	Backend string `yaml:"backend"`
	// Lead is how long before its end a budget is raised; unset is the fast path's own default.
	Lead *Duration `yaml:"lead"`
	// Cores that take real-time work, as "1-3,6"; empty is all but the host's.
	Cores CPUList `yaml:"cores"`
	// ChargeGranularity replaces what the fast path measures: how late the end of a budget may be noticed,
	// which admission charges to every server. Less than measured is right only where no server ever
	// needs more than its runtime_hi. 0: as measured.
	ChargeGranularity *Duration `yaml:"charge_granularity"`
	// Admission: T1 judges by bandwidth alone also where the backend has fixed priorities. That is right only when
	// the periods of a core are harmonic, each divides the longer ones, and jobs come exactly with them.
	// Empty: the test that holds for whatever the containers do.
	Admission string   `yaml:"admission"`
	Servers   []Server `yaml:"servers"`
}

// Server is what a container is in a cluster.
type Server struct {
	// Name is unique in the file.
	Name string `yaml:"name"`
	// Criticality: High, Middle or Low, the default.
	Criticality string   `yaml:"criticality"`
	Period      Duration `yaml:"period"`
	RuntimeLow  Duration `yaml:"runtime_low"`
	// RuntimeHi is runtime_low when unset.
	RuntimeHi Duration `yaml:"runtime_hi"`
	// Deadline is the period when unset.
	Deadline Duration `yaml:"deadline"`
	// Core is chosen when unset.
	Core *int `yaml:"core"`
	// Mode: Elastic, the default, or Reserved.
	Mode string `yaml:"mode"`
	// Levels are budgets between low and high, ascending.
	Levels []Duration `yaml:"levels"`
	// Overruns in so many of the last Periods raise it; unset: 1 of 1 for High, else 2 of 10.
	Overruns int `yaml:"overruns"`
	Periods  int `yaml:"periods"`
	// Dwell is how long a raised budget is kept at least; unset: 20 periods, at least a second.
	Dwell Duration `yaml:"dwell"`
	// Priority of policy SCHED_FIFO for a command, and for the admission test of backends with fixed
	// priorities. 0: by deadline, the shortest highest; so it is always with backend fifo, which takes no other.
	Priority int `yaml:"priority"`

	// Policy: fifo, the default, starts the command as SCHED_FIFO, unless the backend is deadline or cfs; own leaves that to the command.
	Policy string `yaml:"policy"`

	// Command to run, or PID of a process that runs, or Cgroup that exists: exactly one.
	Command []string `yaml:"command"`
	PID     int      `yaml:"pid"`
	Cgroup  string   `yaml:"cgroup"`
}

// Policies of a command.
const (
	PolicyFIFO = "fifo"
	PolicyOwn  = "own"
)

// Duration is microseconds in a file: a number, or a text with a unit, as "1.5ms".
type Duration int64

// UnmarshalYAML implements yaml.Unmarshaler.
func (d *Duration) UnmarshalYAML(node *yaml.Node) error {
	var number int64
	if node.Kind == yaml.ScalarNode && node.ShortTag() == "!!int" && node.Decode(&number) == nil {
		*d = Duration(number)
		return nil
	}
	duration, err := time.ParseDuration(node.Value)
	if node.Kind != yaml.ScalarNode || err != nil {
		return fmt.Errorf(`line %d: %q; want microseconds as a number, or a time with its unit such as "2ms"`, node.Line, node.Value)
	}
	if duration%time.Microsecond != 0 {
		return fmt.Errorf("line %d: %q; want whole microseconds", node.Line, node.Value)
	}
	*d = Duration(duration.Microseconds())
	return nil
}

// CPUList is cores in the kernel's format, or a list of numbers.
type CPUList string

// UnmarshalYAML implements yaml.Unmarshaler.
func (l *CPUList) UnmarshalYAML(node *yaml.Node) error {
	var numbers []int
	if node.Kind == yaml.SequenceNode {
		if err := node.Decode(&numbers); err != nil {
			return err
		}
		*l = CPUList(host.FormatCPUList(numbers))
	} else {
		*l = CPUList(node.Value)
	}
	_, err := host.ParseCPUList(string(*l))
	if err == nil && node.Kind == yaml.MappingNode {
		err = errors.New("it is a mapping")
	}
	if err != nil {
		return fmt.Errorf(`line %d: cores %q; want numbers and ranges such as "1-3,6": %w`, node.Line, node.Value, err)
	}
	return nil
}

// Parse reads a file. It is strict: what it does not know is an error, and every error names the field, its
// value, and what would be right. All faults of the servers are joined.
func Parse(data []byte) (File, error) {
	if len(data) > MaxFile {
		return File{}, fmt.Errorf("the file has %d bytes; want at most %d", len(data), MaxFile)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	var f File
	if err := decoder.Decode(&f); errors.Is(err, io.EOF) {
		return File{}, errors.New("the file is empty; want servers")
	} else if err != nil {
		return File{}, explained(err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return File{}, errors.New("the file has several documents; want one")
	}
	for i := range f.Servers {
		f.Servers[i].fill()
	}
	return f, f.validate()
}

// fill puts in what the file leaves out.
func (s *Server) fill() {
	criticality, err := rt.ParseCriticality(s.Criticality)
	if err == nil {
		s.Criticality = criticality.String()
	}
	s.Mode = cmp.Or(s.Mode, table.Elastic)
	s.RuntimeHi = cmp.Or(s.RuntimeHi, s.RuntimeLow)
	s.Deadline = cmp.Or(s.Deadline, s.Period)
	if s.Overruns == 0 && s.Periods == 0 {
		s.Overruns, s.Periods = rt.Trigger(criticality)
	}
	if s.Dwell == 0 {
		s.Dwell = Duration(rt.Dwell(int64(s.Period)))
	}
}

func (f File) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if len(f.Servers) == 0 {
		fault("servers has no entry; want at least one")
	}
	if f.Backend != "" && !slices.Contains(backends, f.Backend) {
		fault("backend %q; want one of %s", f.Backend, strings.Join(backends, ", "))
	}
	if f.Admission != "" && f.Admission != rt.TestT1 {
		fault("admission %q; want %s, or nothing for the test of the backend", f.Admission, rt.TestT1)
	}
	for name, d := range map[string]*Duration{"lead": f.Lead, "charge_granularity": f.ChargeGranularity} {
		if d != nil && (*d < 0 || *d > Duration(time.Second.Microseconds())) {
			fault("%s %dus; want 0 to 1s", name, *d)
		}
	}
	seen := map[string]int{}
	for i, s := range f.Servers {
		if err := s.validate(); err != nil {
			fault("servers[%d] %q: %w", i, s.Name, err)
		}
		if first, twice := seen[s.Name]; twice {
			fault("servers[%d].name %q is also that of servers[%d]; want unique names", i, s.Name, first)
		}
		seen[s.Name] = i
	}
	return errors.Join(faults...)
}

var backends = []string{"hcbs", "rtgroup", "fifo", "deadline", "cfs"}

// names become names of control groups.
var names = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

func (s Server) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if !names.MatchString(s.Name) {
		fault("name %q; want 1 to 63 letters, digits, - and _", s.Name)
	}
	given := 0
	for _, is := range []bool{len(s.Command) > 0, s.PID != 0, s.Cgroup != ""} {
		if is {
			given++
		}
	}
	if given != 1 {
		fault("%d of command, pid and cgroup are given; want exactly one", given)
	}
	if len(s.Command) > 0 && s.Command[0] == "" {
		fault("command[0] is empty; want a program")
	}
	if s.PID < 0 {
		fault("pid %d; want above 0", s.PID)
	}
	if s.Priority < 0 || s.Priority > MaxPriority {
		fault("priority %d; want 1 to %d, or 0 for one by deadline", s.Priority, MaxPriority)
	}
	if s.Policy != "" && s.Policy != PolicyFIFO && s.Policy != PolicyOwn {
		fault("policy %q; want %s or %s", s.Policy, PolicyFIFO, PolicyOwn)
	}
	if s.Core == nil {
		s.Core = new(int)
	}
	if err := s.table().Validate(); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// table is the server as the fast path takes it. Its core must be known.
func (s Server) table() table.Server {
	out := table.Server{
		ID: cmp.Or(s.Name, "?"), Cgroup: s.Cgroup, Criticality: s.Criticality, PeriodUs: int64(s.Period), DeadlineUs: int64(s.Deadline),
		LowUs: int64(s.RuntimeLow), HighUs: int64(s.RuntimeHi), LeastUs: int64(s.RuntimeLow), Core: *s.Core, Mode: s.Mode,
		Overruns: s.Overruns, Periods: s.Periods, DwellUs: int64(s.Dwell),
	}
	for _, level := range s.Levels {
		out.LevelsUs = append(out.LevelsUs, int64(level))
	}
	return out
}
