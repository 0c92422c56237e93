package node_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

// is says whether all threads of a container have a policy.
func (c *container) is(policy uint32) error {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", c.task.Process.Pid))
	if err != nil {
		return err
	}
	for _, thread := range threads {
		tid, err := strconv.Atoi(thread.Name())
		if err != nil {
			return err
		}
		attr, err := unix.SchedGetAttr(tid, 0)
		if err != nil {
			return err
		}
		if attr.Policy != policy {
			return fmt.Errorf("thread %d has policy %d; want %d", tid, attr.Policy, policy)
		}
	}
	return nil
}

// A change that takes the last core leaves no thread real-time whose budget no process ends, of containers that came by
// NRI either. They are governed again once a core is given back.
func TestWithoutACoreNoThreadStaysRealTimeByUs(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.BTF)
	privileged.Machine(t)
	task, p := task(t), newProcess(t, actuator.FIFO)
	c := newContainer(t, task, actuator.IdentityOf(host.New("/"), actuator.FIFO), "a", 1)
	p.begin()
	server := c.server("a", 2_000, 1)
	if _, err := p.Room(t.Context(), server); err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(t.Context(), raising(1, server)); err != nil {
		t.Fatal(err)
	}
	p.eventually("the container to be real-time", func() error { return c.is(unix.SCHED_FIFO) })
	for flags, why := range map[string]string{
		"--reserved-cores=0-" + strconv.Itoa(machineCores(t)-1): "leave no core to real-time work",
		"--cores=4000": "which the machine has not",
	} {
		p.kill()
		ctx, stop := context.WithTimeout(t.Context(), 2*patience)
		command := exec.CommandContext(ctx, p.program, slices.Concat(p.flags(), []string{flags})...)
		command.Cancel = func() error { return command.Process.Signal(unix.SIGQUIT) } // it says where it hangs
		command.WaitDelay = 5 * time.Second
		out, err := command.CombinedOutput()
		stop()
		if err == nil || !strings.Contains(string(out), why) {
			t.Errorf("with %s it ends with %v, and says\n%s", flags, err, out)
		}
		if err := c.is(unix.SCHED_NORMAL); err != nil {
			t.Errorf("with %s: %v\n%s", flags, err, out)
		}
		p.begin()
		p.eventually("the container to be real-time again", func() error { return c.is(unix.SCHED_FIFO) })
	}
	if err := p.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// machineCores is how many cores the machine has, which are numbered from 0.
func machineCores(t *testing.T) int {
	t.Helper()
	topology, err := host.New("/").Topology()
	if err != nil {
		t.Fatal(err)
	}
	return len(topology.Cores)
}
