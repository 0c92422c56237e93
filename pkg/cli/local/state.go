// Package local runs a stack that outlives the command that started it: a process of its own in the background, known by
// a state file in its directory.
package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/cli/stack"
)

// State is what is known of a running cluster.
type State struct {
	PID           int    `json:"pid"`
	Dir           string `json:"dir"`
	Kubeconfig    string `json:"kubeconfig"`
	ControllerLog string `json:"controllerLog"`
	HollowLog     string `json:"hollowLog"`
	// RealNodes are those of this machine.
	RealNodes []stack.RealNode `json:"realNodes,omitempty"`
}

const stateFile = "mainspring-local.json"

// ErrNotRunning means that no cluster runs in a directory.
var ErrNotRunning = errors.New("no local cluster runs there")

// ErrEnded means that the cluster of a directory was killed: its files are still there. It is an ErrNotRunning too.
var ErrEnded = fmt.Errorf("%w any more", ErrNotRunning)

func statePath(dir string) string { return filepath.Join(dir, stateFile) }

// Read finds the cluster of a directory; ErrNotRunning when there is none, and ErrEnded with the state when it was killed.
func Read(dir string) (State, error) {
	var s State
	data, err := os.ReadFile(statePath(dir))
	if errors.Is(err, os.ErrNotExist) {
		return s, fmt.Errorf("%s: %w", dir, ErrNotRunning)
	}
	if err != nil {
		return s, fmt.Errorf("reading the cluster's state: %w", err)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("reading the cluster's state %s: %w", statePath(dir), err)
	}
	if !sameDirectory(s.Dir, dir) {
		return s, fmt.Errorf("%s: %w: its state file is that of %q", dir, ErrNotRunning, s.Dir)
	}
	if !s.alive() {
		return s, fmt.Errorf("%s: %w: process %d has ended", dir, ErrEnded, s.PID)
	}
	return s, nil
}

// sameDirectory says that two paths lead to one directory. A state file that was copied names another than its own.
func sameDirectory(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// alive says that the process is there and is the one that serves this directory, not another with its number.
func (s State) alive() bool {
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.PID))
	if err != nil || s.PID <= 0 {
		return false
	}
	return strings.Contains(string(command), "\x00--dir="+s.Dir+"\x00")
}

// write makes the state visible to others at once.
func (s State) write() error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the cluster's state: %w", err)
	}
	temporary := statePath(s.Dir) + ".new"
	if err := os.WriteFile(temporary, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing the cluster's state: %w", err)
	}
	if err := os.Rename(temporary, statePath(s.Dir)); err != nil {
		return fmt.Errorf("writing the cluster's state: %w", err)
	}
	return nil
}

// Tell prints how to use the cluster and how to end it.
func (s State) Tell(out io.Writer, kubectl string) {
	fmt.Fprintf(out, `The local cluster is up (process %d). To use it:

  export KUBECONFIG=%s
  %s get nodepools,nodeclaims,nodes

The controller's log is %s, that of the nodes' agents %s
`, s.PID, s.Kubeconfig, kubectl, s.ControllerLog, s.HollowLog)
	for _, n := range s.RealNodes {
		fmt.Fprintf(out, "%s is a real node, the logs of its programs are in %s\n", n.Name, n.Logs)
	}
	if len(s.RealNodes) > 0 {
		fmt.Fprintf(out, `Real nodes run images that are imported (imagePullPolicy: Never):

  mainspring local image --reference example.test/redis:1 --output redis.tar /usr/bin/redis-server
  mainspring local import %s redis.tar

`, s.Dir)
	}
	fmt.Fprintf(out, `To end it and remove its files:

  mainspring local down %s
`, s.Dir)
}

// terminate asks the process to end.
func (s State) terminate() error {
	if err := unix.Kill(s.PID, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("stopping process %d: %w", s.PID, err)
	}
	return nil
}
