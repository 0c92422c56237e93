package actuator_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/host/hosttest"
	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

func TestLocalMovesAProcessThereAndBack(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.RTGroups)
	for _, identity := range []string{actuator.IdentityCPU, actuator.IdentityCpuset} {
		t.Run(identity, func(t *testing.T) { thereAndBack(t, identity) })
	}
}

func thereAndBack(t *testing.T, identity string) {
	l, err := actuator.NewLocal(host.New("/"), identity)
	if err != nil {
		t.Fatal(err)
	}
	top := fmt.Sprintf("/mainspring-test-%d", os.Getpid())
	group := top + "/a"
	t.Cleanup(func() {
		if err := l.Remove(group); err != nil {
			t.Error(err)
		}
		if err := l.Remove(top); err != nil {
			t.Error(err)
		}
	})
	if err := l.Make(group); err != nil {
		t.Fatal(err)
	}
	if err := l.Make(group); err != nil {
		t.Fatalf("making it again: %v", err)
	}
	child := exec.Command("cat")
	hold, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hold.Close(); _ = child.Wait() })

	was := groups(t, child.Process.Pid)
	before, err := l.Join(group, child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if pids, err := l.Processes(group); err != nil || !slices.Equal(pids, []int{child.Process.Pid}) {
		t.Errorf("in the group are %v, %v; want %d", pids, err, child.Process.Pid)
	}
	now := groups(t, child.Process.Pid)
	inCPU := strings.Contains(now, ":cpu:"+group+"\n")
	if !strings.Contains(now, ":cpuset:"+group+"\n") || inCPU != (identity == actuator.IdentityCPU) {
		t.Errorf("after Join the process is in\n%s", now)
	}
	if err := l.Back(child.Process.Pid, before); err != nil {
		t.Fatal(err)
	}
	if now := groups(t, child.Process.Pid); now != was {
		t.Errorf("after Back the process is in\n%s; want\n%s", now, was)
	}
	if pids, err := l.Processes(group); err != nil || len(pids) != 0 {
		t.Errorf("after Back there are %v, %v; want none", pids, err)
	}
	if pids, err := l.Processes(top + "/nothing"); err != nil || len(pids) != 0 {
		t.Errorf("in a group that is not there are %v, %v; want none", pids, err)
	}
}

func groups(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLocalMakesGroupsOfV2(t *testing.T) {
	machine := hosttest.Distribution(t)
	l, err := actuator.NewLocal(machine.Host(), actuator.IdentityCPU)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Make("/mainspring"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(machine.Dir(), "sys/fs/cgroup/mainspring")); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "/", "a", "/a/../b", "/a/"} {
		if err := l.Make(bad); err == nil {
			t.Errorf("Make(%q) is taken", bad)
		}
	}
}
