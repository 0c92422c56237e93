package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// exam is a machine under examination, with what several checks ask for.
type exam struct {
	options  Options
	h        host.Host
	topology host.Topology
	cores    []int // that would take real-time work
	release  string

	groups    host.Cgroups
	groupsErr error
	config    host.KernelConfig
	configSaw Reading
	features  map[string]bool
	debugSaw  Reading

	tried    bool // the programs
	tryErr   error
	programs Programs
}

func newExam(o Options, topology host.Topology, cores []int) *exam {
	e := &exam{options: o, h: o.Host, topology: topology, cores: cores}
	e.release, _ = e.read(releasePath)
	e.groups, e.groupsErr = e.h.Cgroups()
	config, file, err := e.h.KernelConfig()
	if e.config = config; err != nil {
		e.configSaw = Reading{"/proc/config.gz, /boot/config-" + e.release, unreadable(err)}
	} else {
		e.configSaw = Reading{Where: e.h.Rel(file)}
	}
	if e.features, err = e.h.SchedFeatures(); err != nil {
		e.debugSaw = Reading{featuresPath, unreadable(err)}
	}
	if e.tried = o.Programs != nil; e.tried {
		e.programs, e.tryErr = o.Programs(cores)
	}
	return e
}

// Places that several checks name.
const (
	releasePath  = "/proc/sys/kernel/osrelease"
	versionPath  = "/proc/sys/kernel/version"
	cmdlinePath  = "/proc/cmdline"
	featuresPath = "/sys/kernel/debug/sched/features"
	cpuDir       = "/sys/devices/system/cpu/"
)

// read is a file's text, empty when it cannot be read, and what to say of it.
func (e *exam) read(path string) (string, Reading) {
	text, err := e.h.Read(path)
	if err != nil {
		return "", Reading{path, unreadable(err)}
	}
	return text, Reading{path, quoted(text)}
}

// exists says whether a path is there, and what to say of it.
func (e *exam) exists(path string) (bool, Reading) {
	if _, err := os.Stat(e.h.Path(path)); err != nil {
		return false, Reading{path, unreadable(err)}
	}
	return true, Reading{path, "there"}
}

// option is one of the kernel's, and what to say of it. known is false when the options cannot be read.
func (e *exam) option(name string) (value string, known bool, saw Reading) {
	if e.config == nil {
		return "", false, e.configSaw
	}
	value = e.config[name]
	if value == "" {
		value = "n"
	}
	return value, true, Reading{e.configSaw.Where, name + "=" + value}
}

// parameter is the value of a boot parameter, the last one of that name.
func (e *exam) parameter(name string) (value string, saw Reading) {
	parameters, err := e.h.Cmdline()
	if err != nil {
		return "", Reading{cmdlinePath, unreadable(err)}
	}
	saw = Reading{cmdlinePath, "no " + name + "="}
	for _, p := range parameters {
		if v, found := strings.CutPrefix(p, name+"="); found {
			value, saw.What = v, p
		}
	}
	return value, saw
}

// unreadable says why something cannot be read, without the path, which stands beside it.
func unreadable(err error) string {
	var cause *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "not there"
	case errors.Is(err, fs.ErrPermission):
		return "not readable: permission denied"
	case errors.As(err, &cause):
		return "not readable: " + cause.Err.Error()
	}
	return "not readable: " + err.Error()
}

// maxQuoted is how much of a file's text is shown.
const maxQuoted = 200

func quoted(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if text == "" {
		return "empty"
	}
	if len(text) > maxQuoted {
		return text[:maxQuoted] + "..."
	}
	return text
}

// shared are those of a set of CPUs that would take real-time work.
func (e *exam) shared(cpus []int) []int {
	var out []int
	for _, cpu := range cpus {
		if slices.Contains(e.cores, cpu) {
			out = append(out, cpu)
		}
	}
	return out
}

// perCore reads a file of each real-time core, and gathers the cores of each text: "performance" of 4-7.
func (e *exam) perCore(file string) (byText map[string][]int, saw []Reading) {
	byText = map[string][]int{}
	for _, core := range e.cores {
		text, _ := e.read(fmt.Sprintf("%scpu%d/%s", cpuDir, core, file))
		byText[text] = append(byText[text], core)
	}
	for text, cores := range byText {
		if text == "" {
			text = "not there"
		}
		saw = append(saw, Reading{fmt.Sprintf("%scpu{%s}/%s", cpuDir, host.FormatCPUList(cores), file), text})
	}
	slices.SortFunc(saw, func(a, b Reading) int { return strings.Compare(a.Where, b.Where) })
	return byText, saw
}
