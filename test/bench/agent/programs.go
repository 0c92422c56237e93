package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/test/bench/rig"
)

// perSwitch is what the programs at the context switch took.
type perSwitch struct {
	runs uint64
	took time.Duration
}

// mean is nanoseconds per switch.
func (p perSwitch) mean() float64 { return float64(p.took.Nanoseconds()) / float64(max(p.runs, 1)) }

// programsWatch reads the kernel's statistics of the fast path's programs. The kernel keeps them only while somebody
// holds the descriptor of BPF_ENABLE_STATS, and that costs each run some 20 ns, which the figure includes.
type programsWatch struct {
	stats    io.Closer
	programs []*ebpf.Program
	before   perSwitch
}

func watchPrograms(agent *rig.Agent) (*programsWatch, error) {
	processes, err := agent.Processes()
	if err != nil {
		return nil, err
	}
	ids, err := programsOf(processes["fastpath"])
	if err != nil {
		return nil, err
	}
	w := &programsWatch{}
	if w.stats, err = ebpf.EnableStats(unix.BPF_STATS_RUN_TIME); err != nil {
		return nil, fmt.Errorf("enabling statistics of programs: %w", err)
	}
	for _, id := range ids {
		program, err := ebpf.NewProgramFromID(id)
		if err != nil {
			w.close()
			return nil, fmt.Errorf("opening program %d: %w", id, err)
		}
		info, err := program.Info()
		if err == nil && info.Type == ebpf.Tracing && strings.Contains(info.Name, "switch") {
			w.programs = append(w.programs, program)
			continue
		}
		_ = program.Close()
	}
	if len(w.programs) == 0 {
		w.close()
		return nil, errors.New("the fast path has no program at sched_switch")
	}
	w.before, err = w.read()
	return w, err
}

func (w *programsWatch) read() (perSwitch, error) {
	var p perSwitch
	for _, program := range w.programs {
		stats, err := program.Stats()
		if err != nil {
			return p, fmt.Errorf("reading statistics of a program: %w", err)
		}
		p.took += stats.Runtime
		p.runs = max(p.runs, stats.RunCount)
	}
	return p, nil
}

// since is what was run since the watch began.
func (w *programsWatch) since() (perSwitch, error) {
	now, err := w.read()
	return perSwitch{runs: now.runs - w.before.runs, took: now.took - w.before.took}, err
}

func (w *programsWatch) close() {
	for _, program := range w.programs {
		_ = program.Close()
	}
	_ = w.stats.Close()
}

// programsOf are the programs that a process holds.
func programsOf(pid int) ([]ebpf.ProgramID, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		return nil, err
	}
	seen := map[ebpf.ProgramID]bool{}
	var out []ebpf.ProgramID
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // closed meanwhile
		}
		if id, is := programOf(string(text)); is && !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out, nil
}

// programOf finds a program's number in a descriptor's fdinfo.
func programOf(fdinfo string) (ebpf.ProgramID, bool) {
	for line := range strings.Lines(fdinfo) {
		if value, is := strings.CutPrefix(line, "prog_id:"); is {
			id, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32)
			return ebpf.ProgramID(id), err == nil
		}
	}
	return 0, false
}
