package localnode_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/localnode"
	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

// abandoned is the directory of a node whose process was killed.
func abandoned(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", localnode.TempPattern)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func loopback(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ip", "-o", "addr", "show", "dev", "lo").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWhatAKilledNodeLeftIsTakenBack(t *testing.T) {
	privileged.Require(t, privileged.Root)
	dir := abandoned(t)
	group, address, err := localnode.Abandon(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	cgroups, err := host.New("/").Cgroups()
	if err != nil {
		t.Fatal(err)
	}
	cpu, err := cgroups.Dir("cpu", group)
	if err != nil {
		t.Fatal(err)
	}

	// A process in the group, one that only names the directory, and a mount.
	inGroup := exec.CommandContext(t.Context(), "sleep", "600")
	namer := exec.CommandContext(t.Context(), "sh", "-c", "sleep 600; exit 1", dir+"/containerd.sock")
	for _, c := range []*exec.Cmd{inGroup, namer} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
	}
	below := filepath.Join(cpu, "kubepods")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(below, "cgroup.procs"), strconv.Itoa(inGroup.Process.Pid))
	mounted := filepath.Join(dir, "volume")
	if err := os.Mkdir(mounted, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", mounted, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	write(t, localnode.LockPath(dir), "") // nobody holds it

	if err := localnode.RemoveAbandoned(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*exec.Cmd{"the process of the group": inGroup, "the process with the directory's name": namer} {
		if err := c.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("%s ended with %v, want killed", name, err)
		}
	}
	for _, path := range []string{dir, cpu} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	if strings.Contains(loopback(t), address+"/") {
		t.Errorf("the loopback device still has %s", address)
	}
}

// A container that was paused as its node was killed, as those are whose state is written, is frozen.
func TestAPausedContainerOfAKilledNodeEnds(t *testing.T) {
	privileged.Require(t, privileged.Root)
	dir := abandoned(t)
	group, _, err := localnode.Abandon(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	cgroups, err := host.New("/").Cgroups()
	if err != nil {
		t.Fatal(err)
	}
	paused := exec.CommandContext(t.Context(), "sleep", "600")
	if err := paused.Start(); err != nil {
		t.Fatal(err)
	}
	state := ""
	for _, controller := range []string{"cpu", "freezer"} { // which is of version 1, is mounted by itself, and comes after others
		at, err := cgroups.Dir(controller, group)
		if err != nil {
			_ = paused.Process.Kill()
			_ = paused.Wait()
			t.Skipf("SKIPPED: no hierarchy of version 1 freezes processes here: %v", err)
		}
		below := filepath.Join(at, "kubepods")
		if err := os.Mkdir(below, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(below, "cgroup.procs"), strconv.Itoa(paused.Process.Pid))
		state = filepath.Join(below, "freezer.state")
	}
	write(t, state, "FROZEN")
	write(t, localnode.LockPath(dir), "") // which no process has locked
	if err := localnode.RemoveAbandoned(t.Context()); err != nil {
		write(t, state, "THAWED")
		t.Fatal(err)
	}
	if err := paused.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the paused process ended with %v, want killed", err)
	}
}

func TestALivingNodeIsLeftAlone(t *testing.T) {
	privileged.Require(t, privileged.Root)
	dir := abandoned(t)
	lock, err := localnode.LockFile(localnode.LockPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := localnode.RemoveAbandoned(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("the directory of a node that lives: %v", err)
	}
}

func TestSocketsOfShimsGo(t *testing.T) {
	privileged.Require(t, privileged.Root)
	dir := abandoned(t)
	shims := localnode.ShimSockets
	if err := os.MkdirAll(shims, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(shims); _ = os.Remove(filepath.Dir(shims)) }) // unless a node uses them
	socket, other := filepath.Join(shims, "mainspring-test"), filepath.Join(shims, "mainspring-test-other")
	write(t, socket, "")
	write(t, other, "")
	t.Cleanup(func() { _ = os.Remove(other) })
	bundle := filepath.Join(localnode.StateDir(dir), "io.containerd.runtime.v2.task", "k8s.io", "c1")
	if err := os.MkdirAll(bundle, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(bundle, "bootstrap.json"), `{"version":3,"address":"unix://`+socket+`","protocol":"ttrpc"}`)
	write(t, localnode.LockPath(dir), "")
	if err := localnode.RemoveAbandoned(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket of the shim is still there: %v", err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("a socket of somebody else: %v", err)
	}
}

// What a second node reads, the first one's kubelet has set: it is to leave what was there before both.
func TestASecondNodeNotesWhatWasBeforeTheFirst(t *testing.T) {
	privileged.Require(t, privileged.Root)
	first, second := abandoned(t), abandoned(t)
	write(t, filepath.Join(first, "node.json"), `{"sysctls":{"vm/overcommit_memory":"42"}}`)
	lock, err := localnode.LockFile(localnode.LockPath(first))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if _, _, err := localnode.Abandon(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	write(t, localnode.LockPath(second), "") // nobody holds it
	noted, err := os.ReadFile(filepath.Join(second, "node.json"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(noted), `"vm/overcommit_memory":"42"`) {
		t.Errorf("it noted %s", noted)
	}
	if err := localnode.RemoveAbandoned(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now, err := os.ReadFile("/proc/sys/vm/overcommit_memory"); err != nil || strings.TrimSpace(string(now)) == "42" {
		t.Errorf("while the first lives, its kubelet's settings stay: %q, %v", now, err)
	}
}
