// Package rig runs the node agent for benchmarks: mainspring agent --standalone as its own process, as anyone
// would, with the periodic program as the load.
package rig

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/agent/standalone"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/process"
	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

// Programs are the binaries of a benchmark.
type Programs struct{ Mainspring, Fastpath, Task string }

// AddFlags adds the flags that say where the programs are.
func (p *Programs) AddFlags(f *flag.FlagSet) {
	f.StringVar(&p.Mainspring, "mainspring", "bin/mainspring", "binary of the command line")
	f.StringVar(&p.Fastpath, "fastpath", "bin/fastpath", "binary of the fast path")
	f.StringVar(&p.Task, "task", "bin/bench-task", "binary of the periodic load")
}

// Resolve makes the paths absolute and checks that the programs are there.
func (p *Programs) Resolve() error {
	for name, path := range map[string]*string{"--mainspring": &p.Mainspring, "--fastpath": &p.Fastpath, "--task": &p.Task} {
		absolute, err := filepath.Abs(*path)
		if err == nil {
			_, err = os.Stat(absolute)
		}
		if err != nil {
			return fmt.Errorf("%s: %w; build it with make build", name, err)
		}
		*path = absolute
	}
	if os.Geteuid() != 0 {
		return errors.New("this benchmark needs root: it makes real-time threads and control groups, and loads programs into the kernel")
	}
	return nil
}

// Server is an entry of the file for mainspring agent --standalone; times are microseconds.
type Server struct {
	Name        string  `json:"name"`
	Criticality string  `json:"criticality"`
	Period      int64   `json:"period"`
	Low         int64   `json:"runtime_low"`
	High        int64   `json:"runtime_hi"`
	Levels      []int64 `json:"levels,omitempty"`
	Core        int     `json:"core"`
	Mode        string  `json:"mode,omitempty"`
	Dwell       int64   `json:"dwell,omitempty"`
	Priority    int     `json:"priority,omitempty"`
	// Policy own: the command becomes SCHED_FIFO itself, once it has started.
	Policy  string   `json:"policy,omitempty"`
	Command []string `json:"command"`
}

// File is that file. Its JSON is the YAML that the agent reads.
type File struct {
	Backend string `json:"backend,omitempty"`
	Lead    string `json:"lead,omitempty"`
	Cores   string `json:"cores,omitempty"`
	// Granularity that is charged to every budget; empty: as measured.
	Granularity string `json:"charge_granularity,omitempty"`
	// Admission T1: by bandwidth alone.
	Admission string `json:"admission,omitempty"`
	// Samples is how many reactions are kept for each core.
	Samples int      `json:"-"`
	Servers []Server `json:"servers"`
}

// Agent is a node agent that runs.
type Agent struct {
	child    *process.Process
	fastpath string
	// Client of its fast path.
	Client *client.Client
	// Dir holds its state and all logs.
	Dir string
}

// Start starts the agent with a file, and returns once all its servers have begun to run. Dir is new, and may
// be removed once the agent has stopped.
func Start(ctx context.Context, p Programs, f File, dir string) (*Agent, error) {
	data, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("encoding the servers: %w", err)
	}
	file := filepath.Join(dir, "servers.yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, fmt.Errorf("writing the servers: %w", err)
	}
	child, err := process.Start(process.Command{
		Name: "mainspring", Path: p.Mainspring, Log: filepath.Join(dir, "agent.log"),
		Args: []string{"agent", "--standalone", file, "--fastpath", p.Fastpath, "--state-dir", dir, "--plain", "--samples", strconv.Itoa(f.Samples), "--report", reportFile(dir)},
	})
	if err != nil {
		return nil, err
	}
	a := &Agent{child: child, fastpath: p.Fastpath, Client: client.New(standalone.Socket(dir)), Dir: dir}
	if err := a.await(ctx, len(f.Servers)); err != nil {
		return nil, errors.Join(err, a.Stop())
	}
	return a, nil
}

// startTimeout bounds starting the agent, its self-test included.
const startTimeout = 60 * time.Second

func (a *Agent) await(ctx context.Context, servers int) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		report, err := a.Client.Report(ctx)
		running := 0
		for _, s := range report.Servers {
			if s.UsedUs > 0 {
				running++
			}
		}
		if err == nil && running == servers {
			return nil
		}
		select {
		case <-a.child.Exited():
			return a.child.Died()
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d servers, %d run: %w; the agent said:\n%s", servers, running, errors.Join(err, ctx.Err()), a.child.Tail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Wait waits until the agent has stopped of itself, because its commands ended.
func (a *Agent) Wait(ctx context.Context) error {
	select {
	case <-a.child.Exited():
		if a.child.Err() != nil {
			return a.child.Died()
		}
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), a.Stop())
	}
}

func reportFile(dir string) string { return filepath.Join(dir, "report.json") }

// Last is the last report of an agent that has stopped.
func (a *Agent) Last() (table.Report, error) {
	var r table.Report
	data, err := os.ReadFile(reportFile(a.Dir))
	if err != nil {
		return r, fmt.Errorf("reading the last report: %w", err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("reading the last report: %w", err)
	}
	return r, nil
}

// stopTimeout is how long the agent may take to put everything back.
const stopTimeout = 30 * time.Second

// Stop has the agent put everything back.
func (a *Agent) Stop() error {
	if !a.child.Running() {
		return nil
	}
	return a.child.Stop(stopTimeout)
}

// Processes are the agent's: itself and its fast path, told by name. The servers' commands are not among them.
func (a *Agent) Processes() (map[string]int, error) {
	out := map[string]int{"agent": a.child.PID()}
	pids, err := children(a.child.PID())
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err == nil && program == a.fastpath {
			out["fastpath"] = pid
		}
	}
	if out["fastpath"] == 0 {
		return nil, errors.New("the agent has no fast path")
	}
	return out, nil
}

// Alone waits until nobody else's tests or benchmarks use the real-time scheduler of this machine.
func Alone() (release func(), err error) { return privileged.Lock() }

// Signals end a benchmark, a terminal or a reader of its output that goes away among them; what it changed is put back.
var Signals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE}
