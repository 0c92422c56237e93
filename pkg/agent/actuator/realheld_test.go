package actuator

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

// useUp runs a thread in a group until the kernel holds it for so long that it has to be freed.
func useUp(t *testing.T, group string) {
	t.Helper()
	m, held := scratchMachine(t, group), false
	err := m.kernel.borrow(func(tid int, home map[string]string) error {
		err := errors.Join(m.attach("cpu", group, tid), pin(tid, 1))
		if err == nil {
			held, err = freed(m.kernel, tid, func() error {
				_, err := untilStopped(func() error { return m.kernel.setAttr(tid, &unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 1}) })
				return err
			})
		}
		return errors.Join(err, m.attach("cpu", m.homeIn("cpu", home), tid))
	})
	if err != nil || !held {
		t.Fatalf("using up %s: %v, held %t", group, err, held)
	}
}

// scratchMachine tries backends out in a group.
func scratchMachine(t *testing.T, scratch string) *machine {
	t.Helper()
	m, err := newMachine(ProbeOptions{
		Host: host.New("/"), StateDir: t.TempDir(), Cores: []int{1}, Now: func() int64 { return time.Now().UnixNano() },
	})
	if err != nil {
		t.Fatal(err)
	}
	m.scratch = scratch
	return m
}

// TestALevelThatIsUsedUp: without CAP_DAC_OVERRIDE backends are tried out below the kubelet's groups. What containers used of those may have
// them throttled for a minute, and the thread of the self-test with them, though its own group has its budget; the process keeps to one core.
func TestALevelThatIsUsedUp(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.RTGroups)
	privileged.Machine(t)
	level := fmt.Sprintf("/mainspring-test-%d", os.Getpid())
	makeReal(t, level)
	makeReal(t, level+"/used")
	for _, group := range []string{level, level + "/used"} {
		write(t, "cpu", group, rtPeriod, int(windowUs))
		write(t, "cpu", group, rtRuntime, 20_000)
	}
	useUp(t, level+"/used")
	write(t, "cpu", level+"/used", rtRuntime, 0)
	b, _, err := buildRTGroup(scratchMachine(t, level+scratchName))
	if err != nil {
		t.Fatal(err)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if us, err := MeasureGranularity(t.Context(), b, 1); err == nil || !strings.Contains(err.Error(), "every sample was disturbed") {
		t.Errorf("granularity %d us, %v; want the level's time to be used up", us, err)
	}
	if n := runtime.GOMAXPROCS(0); n != 1 {
		t.Errorf("the self-test leaves %d places in Go's scheduler; want 1", n)
	}
}
