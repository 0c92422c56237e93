package standalone

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/host"
)

// Program is the file name of the program that governs. It is one of its own, beside the command line, which has
// twenty times its code and so more memory for as long as it runs.
const Program = "standalone"

// LaunchCommand is the program's first argument where it is to become a server's command. See Launch.
const LaunchCommand = "launch"

// ErrUsage is wrapped by errors in how the program was called.
var ErrUsage = errors.New("usage")

// Command is a run as a command line asks for it.
type Command struct {
	In       io.Reader
	Out, Err io.Writer
	// Interactive says that a person watches.
	Interactive bool

	file, fastpath, stateDir, report string
	duration                         time.Duration
	plain                            bool
	samples                          int
}

// AddFlags adds the flags of the program, which are also those of the command that becomes it.
func (c *Command) AddFlags(f *flag.FlagSet) {
	f.StringVar(&c.file, "standalone", "", "`file` of servers; - is the standard input")
	f.StringVar(&c.fastpath, "fastpath", "", "`binary` of the fast path; empty: fastpath beside this program")
	f.StringVar(&c.stateDir, "state-dir", "/run/mainspring/standalone", "`directory` for state, logs of the commands, and the fast path's socket; absolute")
	f.DurationVar(&c.duration, "duration", 0, "stop after this time; 0: when all commands have ended, or on Ctrl-C")
	f.StringVar(&c.report, "report", "", "`file` for the last report, as JSON")
	f.BoolVar(&c.plain, "plain", false, "print lines of what changed instead of a table that is redrawn")
	f.IntVar(&c.samples, "samples", 0, "`number` of reactions to keep for each core, for measurements over the socket")
}

// Validate says what is wrong with the flags alone, in errors that wrap ErrUsage.
func (c *Command) Validate() error {
	if c.file == "" {
		return fmt.Errorf("%w: --standalone is not given; want a file of servers", ErrUsage)
	}
	if !filepath.IsAbs(c.stateDir) {
		return fmt.Errorf("%w: --state-dir %q: want an absolute path", ErrUsage, c.stateDir)
	}
	return nil
}

// Run governs the servers of the file until it is over, shows what happens, and writes the report.
func (c *Command) Run(ctx context.Context) error {
	if err := c.Validate(); err != nil {
		return err
	}
	file, err := c.read()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	fastpath, err := c.findFastpath(self)
	if err != nil {
		return err
	}
	show := Lines(c.Out)
	if !c.plain && c.Interactive {
		show = Live(c.Out, file)
	}
	last, err := Run(ctx, Options{
		File: file, Fastpath: fastpath, Launcher: []string{self, LaunchCommand}, StateDir: c.stateDir,
		Duration: c.duration, Samples: c.samples, Host: host.New("/"), Clock: clock.RealClock{}, Show: show,
		Say: func(line string) { fmt.Fprintln(c.Err, "mainspring: "+line) },
	})
	if len(last.Servers) > 0 {
		Table(c.Out, file, last, 0)
	}
	return errors.Join(err, c.write(last))
}

func (c *Command) findFastpath(self string) (string, error) {
	path := c.fastpath
	if path == "" {
		path = filepath.Join(filepath.Dir(self), "fastpath")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("finding the fast path: %w", err)
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("--fastpath: %w; build it with make build, or say where it is", err)
	}
	return path, nil
}

// read reads the file of servers.
func (c *Command) read() (File, error) {
	in := c.In
	if c.file != "-" {
		file, err := os.Open(c.file)
		if err != nil {
			return File{}, fmt.Errorf("--standalone: %w", err)
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, MaxFile+1))
	if err != nil {
		return File{}, fmt.Errorf("--standalone: reading %s: %w", c.file, err)
	}
	file, err := Parse(data)
	if err != nil {
		return file, fmt.Errorf("--standalone %s:\n%w", c.file, err)
	}
	return file, nil
}

// write writes the last report.
func (c *Command) write(r table.Report) error {
	if c.report == "" {
		return nil
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	if err := os.WriteFile(c.report, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	return nil
}
