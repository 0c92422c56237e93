package batch_test

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/test/batch"
)

func policyOf(t *testing.T, tid int) *unix.SchedAttr {
	t.Helper()
	attr, err := unix.SchedGetAttr(tid, 0)
	if err != nil {
		t.Fatal(err)
	}
	return attr
}

// started starts a command that waits, and ends it with the test.
func started(t *testing.T, start func(*exec.Cmd) error) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

func TestWhatIsStartedIsABatchAndWhoStartsItIsAsBefore(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := *policyOf(t, 0)
	if got := policyOf(t, started(t, batch.Start)); got.Policy != unix.SCHED_BATCH || got.Nice != before.Nice {
		t.Errorf("the command has %+v; want SCHED_BATCH with nice %d", got, before.Nice)
	}
	if after := *policyOf(t, 0); after.Policy != before.Policy || after.Nice != before.Nice || after.Runtime != before.Runtime {
		t.Errorf("the thread that started it has %+v; want %+v", after, before)
	}
}

// entered makes this test binary a process that enters, and then starts a command and waits.
const entered = "MAINSPRING_BATCH_TEST_ENTERED"

func TestMain(m *testing.M) {
	if os.Getenv(entered) == "" {
		os.Exit(m.Run())
	}
	if err := batch.Enter(); err != nil {
		println(err.Error())
		os.Exit(1)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		os.Exit(1)
	}
	for _, thread := range threads {
		tid, _ := strconv.Atoi(thread.Name())
		if attr, err := unix.SchedGetAttr(tid, 0); err == nil && attr.Policy != unix.SCHED_BATCH {
			println("thread", tid, "has policy", attr.Policy)
			os.Exit(1)
		}
	}
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		os.Exit(1)
	}
	attr, err := unix.SchedGetAttr(child.Process.Pid, 0)
	_ = child.Process.Kill()
	_ = child.Wait()
	if err != nil || attr.Policy != unix.SCHED_BATCH {
		println("the child is no batch")
		os.Exit(1)
	}
	os.Exit(0)
}

func TestAProcessThatEntersIsABatchWithItsChildren(t *testing.T) {
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), executable)
	cmd.Env = append(os.Environ(), entered+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
