package ebpf_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
)

const (
	cpuRoot    = "/sys/fs/cgroup/cpu"
	cpusetRoot = "/sys/fs/cgroup/cpuset"
)

// makeGroup makes a cgroup below dir that goes with the test, and returns its path and id.
func makeGroup(t testing.TB, parent, name string) (string, uint64) {
	t.Helper()
	dir := filepath.Join(parent, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeGroup(t, dir) })
	var stat unix.Stat_t
	if err := unix.Stat(dir, &stat); err != nil {
		t.Fatal(err)
	}
	return dir, stat.Ino
}

// removeGroup gives a group's bandwidth back at once, and removes it once its last thread is gone.
func removeGroup(t testing.TB, dir string) {
	_ = os.WriteFile(filepath.Join(dir, "cpu.rt_runtime_us"), []byte("0"), 0)
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		err := os.Remove(dir)
		if err == nil || os.IsNotExist(err) {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("removing %s: %v", dir, err)
			return
		}
	}
}

func testName() string { return "mainspring-test-" + strconv.Itoa(os.Getpid()) }

func write(t testing.TB, dir, file, value string) {
	t.Helper()
	var err error
	for range 400 { // bandwidth of groups that went comes back asynchronously
		if err = os.WriteFile(filepath.Join(dir, file), []byte(value), 0); err == nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("writing %q to %s: %v", value, filepath.Join(dir, file), err)
}

// rtGroup makes an RT group with a budget.
func rtGroup(t testing.TB, parent, name string, runtime, period time.Duration) (string, uint64) {
	t.Helper()
	dir, id := makeGroup(t, parent, name)
	write(t, dir, "cpu.rt_period_us", strconv.FormatInt(period.Microseconds(), 10))
	write(t, dir, "cpu.rt_runtime_us", strconv.FormatInt(runtime.Microseconds(), 10))
	return dir, id
}

// cpusetGroup makes a group of the cpuset hierarchy with all cores of its parent.
func cpusetGroup(t testing.TB, name string) (string, uint64) {
	t.Helper()
	dir, id := makeGroup(t, cpusetRoot, name)
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		text, err := os.ReadFile(filepath.Join(cpusetRoot, file))
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, file, string(text))
	}
	return dir, id
}

// open opens a monitor with rings for both of the machine's first cores.
func open(t *testing.T, o ebpf.Options) *ebpf.Monitor {
	t.Helper()
	if o.Cores == nil {
		o.Cores = []int{0, 1}
	}
	m, err := ebpf.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// watch has a slot watched for the groups.
func watch(t testing.TB, m *ebpf.Monitor, slot int, c ebpf.Config, groups ...uint64) {
	t.Helper()
	flags := c.Flags | ebpf.FlagLive
	c.Flags = 0
	*m.Config(slot) = c
	for _, id := range groups {
		if err := m.Track(id, slot); err != nil {
			t.Fatal(err)
		}
	}
	m.Config(slot).Flags = flags
}

// events reads a ring until it has been silent for the time given.
func events(t *testing.T, m *ebpf.Monitor, core int, silence time.Duration) []ebpf.Event {
	t.Helper()
	ring, err := m.Ring(core)
	if err != nil {
		t.Fatal(err)
	}
	var all []ebpf.Event
	for {
		var e ebpf.Event
		ring.SetDeadline(ebpf.Monotonic() + silence.Nanoseconds())
		err := ring.Next(&e)
		if err != nil {
			return all
		}
		all = append(all, e)
	}
}
