package actuator_test

import (
	"errors"
	"fmt"
	"io/fs"
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
	if notes, err := l.Back(child.Process.Pid, before); err != nil || len(notes) > 0 {
		t.Fatal(notes, err)
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

// A caller that ends or moves the processes of a group must not be given a number that means the caller itself to the
// kernel, or all that there is.
func TestLocalNamesNoProcessesOfOtherNamespaces(t *testing.T) {
	tree := hosttest.Lab(t)
	l, err := actuator.NewLocal(tree.Host(), actuator.IdentityCpuset)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"7\n9\n": "", "7\n0\n": `process "0"`, "-1\n": `process "-1"`, "4294967303\n": `process "4294967303"`} {
		tree.Write("sys/fs/cgroup/cpuset/kubepods/cgroup.procs", text)
		pids, err := l.Processes("/kubepods")
		if want == "" && (err != nil || !slices.Equal(pids, []int{7, 9})) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, %v; want %q", text, pids, err, want)
		}
	}
}

// Another process made a group that is there, in whatever hierarchy, and it stays as it is; so does one that took the
// name of ours.
func TestLocalCreatesOnlyWhatIsNotThere(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.RTGroups)
	l, err := actuator.NewLocal(host.New("/"), actuator.IdentityCPU)
	if err != nil {
		t.Fatal(err)
	}
	inCpuset, err := actuator.NewLocal(host.New("/"), actuator.IdentityCpuset)
	if err != nil {
		t.Fatal(err)
	}
	top := fmt.Sprintf("/mainspring-test-%d", os.Getpid())
	group := top + "/mine"
	t.Cleanup(func() {
		if err := errors.Join(l.Remove(group), l.Remove(top)); err != nil {
			t.Error(err)
		}
	})
	if err := l.Make(top); err != nil {
		t.Fatal(err)
	}
	theirs, err := inCpuset.Create(group)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Create(group); !errors.Is(err, fs.ErrExist) {
		t.Errorf("error %v; want that the group is there", err)
	}
	if _, err := os.Stat("/sys/fs/cgroup/cpu" + group); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("half of the group was made: %v", err)
	}
	if own, err := inCpuset.Own(group, theirs); !own || err != nil {
		t.Errorf("the group that was there has gone: %v", err)
	}
	if err := inCpuset.RemoveOwn(group, theirs); err != nil {
		t.Fatal(err)
	}
	ours, err := l.Create(group)
	if err != nil {
		t.Fatal(err)
	}
	if own, err := inCpuset.Own(group, theirs); own || err != nil {
		t.Errorf("another group of the name is taken for the one that went: %v", err)
	}
	if err := inCpuset.RemoveOwn(group, theirs); err != nil {
		t.Error(err)
	}
	if own, err := l.Own(group, ours); !own || err != nil {
		t.Errorf("it was removed by whom it does not belong to: %v", err)
	}
}

// A process whose former group has gone comes to the nearest one above that takes it.
func TestLocalMovesBackAboveWhatHasGone(t *testing.T) {
	machine := hosttest.Distribution(t)
	l, err := actuator.NewLocal(machine.Host(), actuator.IdentityCPU)
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(machine.Dir(), "sys/fs/cgroup")
	// A directory in place of the file: writing to it fails, as the kernel has it with a group that passes controllers on.
	if err := os.MkdirAll(filepath.Join(root, "user.slice/user-0.slice/cgroup.procs"), 0o755); err != nil {
		t.Fatal(err)
	}
	notes, err := l.Back(4711, map[string]string{host.Unified: "/user.slice/user-0.slice/session-1.scope"})
	if err != nil || len(notes) != 1 || !strings.Contains(notes[0], "process 4711") || !strings.HasSuffix(notes[0], "it is in /user.slice now") {
		t.Errorf("notes %q, %v; want the process in /user.slice", notes, err)
	}
	if text, err := os.ReadFile(filepath.Join(root, "user.slice/cgroup.procs")); err != nil || string(text) != "4711" {
		t.Errorf("moved to /user.slice: %q, %v", text, err)
	}
	// A group that is there and refuses is no reason to go elsewhere.
	if notes, err := l.Back(4711, map[string]string{host.Unified: "/user.slice/user-0.slice"}); err == nil || len(notes) > 0 {
		t.Errorf("notes %q, %v; want an error", notes, err)
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
