package ebpf_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	cilium "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

func TestOptionsAreChecked(t *testing.T) {
	for want, o := range map[string]ebpf.Options{
		"cores[0] is -1; want 0 to 1023":       {Cores: []int{-1}},
		"cores[1] is 1024; want 0 to 1023":     {Cores: []int{0, 1024}},
		"cores[2] is 3, which is there twice":  {Cores: []int{3, 1, 3}},
		"ring bytes are 5000; want a power of": {RingBytes: 5000},
		"ring bytes are 1024; want a power of": {RingBytes: 1024},
		"identity is 7; want IdentityCPU":      {Identity: 7},
	} {
		if _, err := ebpf.Open(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("opening with %+v: %v; want %q", o, err, want)
		}
	}
}

func TestTypesOfTheKernel(t *testing.T) {
	privileged.Require(t, privileged.BTF)
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	for tracepoint, structure := range map[string]string{"sched_waking": "task_struct", "sched_switch": "", "sched_nothing": ""} {
		if got := ebpf.Takes(spec, tracepoint, "task_struct"); got != (structure == "task_struct") {
			t.Errorf("%s takes a thread first: %v", tracepoint, got)
		}
	}
	if !ebpf.HasMember(spec, "task_struct", "cgroups") || ebpf.HasMember(spec, "task_struct", "none") || ebpf.HasMember(spec, "none", "cgroups") {
		t.Error("want task_struct.cgroups, and no other")
	}
}

// TestVerifier has the kernel's verifier look at every object, for both identities.
func TestVerifier(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.BTF)
	for _, identity := range []ebpf.Identity{ebpf.IdentityCPU, ebpf.IdentityCpuset} {
		m, program, err := ebpf.OpenWithDeadline(ebpf.Options{Identity: identity, Jobs: true, RunQueue: true})
		if err != nil {
			var rejected *cilium.VerifierError
			if errors.As(err, &rejected) {
				t.Fatalf("%+v", rejected)
			}
			t.Fatal(err)
		}
		if err := errors.Join(program.Close(), m.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestWantOfMemoryIsWaitedOut(t *testing.T) {
	for want, errs := range map[error][]error{
		nil:          {unix.ENOMEM, unix.ENOMEM, nil},
		unix.EPERM:   {unix.ENOMEM, unix.EPERM},
		unix.ENOMEM:  slices.Repeat([]error{unix.ENOMEM}, 10),
		unix.ENOTDIR: {unix.ENOTDIR},
	} {
		n := 0
		err := ebpf.RetryMemory(func() error { n++; return errs[n-1] })
		if !errors.Is(err, want) || n != len(errs) {
			t.Errorf("%v after %d tries; want %v after %d", err, n, want, len(errs))
		}
	}
}

func TestTrackedGroups(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.BTF)
	m := open(t, ebpf.Options{})
	for _, slot := range []int{-1, ebpf.MaxSlots} {
		if err := m.Track(1, slot); err == nil {
			t.Errorf("slot %d was accepted", slot)
		}
	}
	for range 2 {
		if err := errors.Join(m.Track(10, 1), m.Track(11, 1), m.Track(11, 2), m.Untrack(10), m.Untrack(11), m.Untrack(12)); err != nil {
			t.Error(err)
		}
	}
	if _, err := m.Ring(5); err == nil {
		t.Error("a core without a ring has one")
	}
	m.Wake(5)
}

func TestRingEnds(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.BTF)
	m := open(t, ebpf.Options{})
	ring, err := m.Ring(0)
	if err != nil {
		t.Fatal(err)
	}
	var e ebpf.Event
	ring.SetDeadline(ebpf.Monotonic() + 2_000_000)
	if err := ring.Next(&e); !errors.Is(err, ebpf.ErrDeadline) {
		t.Errorf("after the deadline: %v", err)
	}
	ring.SetDeadline(0)
	ring.Wake()
	if err := ring.Next(&e); !errors.Is(err, ebpf.ErrDeadline) {
		t.Errorf("after waking: %v", err)
	}
	if n := testing.AllocsPerRun(100, func() { ring.Wake(); _ = ring.Next(&e) }); n != 0 {
		t.Errorf("waiting allocates %v times", n)
	}
	ended := make(chan error)
	go func() {
		err := ring.Next(&e)
		if errors.Is(err, ebpf.ErrDeadline) { // a wake-up of before that came late
			err = ring.Next(&e)
		}
		ended <- err
	}()
	if err := ring.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Errorf("after closing: %v", err)
	}
	if err := ring.Next(&e); !errors.Is(err, os.ErrClosed) {
		t.Errorf("once more after closing: %v", err)
	}
}

// TestDeadlineTracepoint runs the program of a tracepoint that this kernel may not have, with the deadline
// entity of the test's own thread.
func TestDeadlineTracepoint(t *testing.T) {
	attached(t)
	programs := decisions(t)
	m, program, err := ebpf.OpenWithDeadline(ebpf.Options{Cores: []int{0, 1}, Identity: ebpf.IdentityCpuset})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(program.Close(), m.Close()) })
	dir, id := cpusetGroup(t, testName())
	watch(t, m, 9, ebpf.Config{
		BudgetNs: uint64(2 * ms), AlarmNs: uint64(ms), PeriodNs: uint64(20 * ms), Source: ebpf.SourceDeadline,
		Flags: ebpf.FlagAlarm, Generation: 3, Core: 1,
	}, id)
	entered := make(chan struct{})
	go func() {
		defer close(entered)
		runtime.LockOSThread() // and never unlocked: the thread is in the group, and ends here
		if err := (task{Groups: []string{dir}, Core: 1}).join(); err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = leave(cpusetRoot) }()
		time.Sleep(time.Millisecond) // to be switched in as a member
		var entity struct{ Address uint64 }
		decide(t, programs.DeadlineEntity, &entity)
		for range 2 {
			if _, err := program.Run(&cilium.RunOptions{Context: &entity}); err != nil {
				t.Error(err)
			}
		}
	}()
	<-entered
	all := events(t, m, 1, 10*time.Millisecond)
	if len(all) != 1 || all[0].Kind != ebpf.KindThrottled || all[0].Slot != 9 || all[0].Generation != 3 {
		t.Errorf("events %+v: want one throttle of slot 9, generation 3", all)
	}
	if state := m.State(9).Load(); state.Throttles != 1 {
		t.Errorf("state %+v: want one throttle in the window", state)
	}
}

// A thread that has used its server's budget several times over is told of by that program, too, though its alarm was told
// before: it stands still for whole windows to come.
func TestDebtAtTheDeadlineTracepoint(t *testing.T) {
	attached(t)
	programs := decisions(t)
	m, program, err := ebpf.OpenWithDeadline(ebpf.Options{Cores: []int{0, 1}, Identity: ebpf.IdentityCpuset})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(program.Close(), m.Close()) })
	dir, id := cpusetGroup(t, testName())
	const budget, ran = ms, 4 * ms
	watch(t, m, 9, ebpf.Config{
		BudgetNs: uint64(budget), AlarmNs: uint64(budget / 2), WholeNs: uint64(40 * ms), PeriodNs: uint64(400 * ms), Source: ebpf.SourceDeadline,
		Flags: ebpf.FlagAlarm, Generation: 3, Core: 1,
	}, id)
	told := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread is in the group, and ends here
		told <- func() error {
			if err := (task{Groups: []string{dir}, Policy: unix.SCHED_DEADLINE, Runtime: uint64(40 * ms), Period: 400 * ms}).join(); err != nil {
				return err
			}
			time.Sleep(time.Millisecond) // to be switched in as a member
			burn(unix.CLOCK_THREAD_CPUTIME_ID, ran)
			var entity struct{ Address uint64 }
			decide(t, programs.DeadlineEntity, &entity)
			_ = clock(unix.CLOCK_THREAD_CPUTIME_ID) // has the kernel account for the thread
			_, err := program.Run(&cilium.RunOptions{Context: &entity})
			return errors.Join(err, leave(cpusetRoot))
		}()
	}()
	if err := <-told; err != nil {
		t.Fatal(err)
	}
	all := events(t, m, 1, 10*time.Millisecond)
	if len(kinds(all, ebpf.KindAlarm)) != 1 {
		t.Fatalf("events %+v: want the alarm", all)
	}
	if lost := lostBy(all, budget); len(lost) != 1 || lost[0].UsedNs < uint64(ran) {
		t.Errorf("events %+v: want one of whole windows lost, with a use of at least %d ns", all, ran)
	}
}

// rightsEnv has the test binary open a monitor with only the capabilities named.
const rightsEnv = "MAINSPRING_TEST_RIGHTS"

// keepRights gives up all capabilities of the calling thread but those kept.
func keepRights(keep []int) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	for _, c := range keep {
		sets[c/32].Permitted |= 1 << (c % 32)
		sets[c/32].Effective |= 1 << (c % 32)
	}
	return unix.Capset(&header, &sets[0])
}

func tryRights(text string) error {
	var keep []int
	if err := json.Unmarshal([]byte(text), &keep); err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := keepRights(keep); err != nil {
		return fmt.Errorf("giving up capabilities: %w", err)
	}
	m, err := ebpf.Open(ebpf.Options{Cores: []int{0}, Jobs: true, RunQueue: true})
	if err != nil {
		fmt.Printf("permission=%v unsupported=%v %v\n", errors.Is(err, ebpf.ErrPermission), errors.Is(err, ebpf.ErrUnsupported), err)
		return nil
	}
	fmt.Printf("opened %q\n", m.Notes())
	return m.Close()
}

func TestRights(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.BTF)
	for name, r := range map[string]struct {
		keep []int
		want []string
	}{
		"CAP_BPF and CAP_PERFMON are enough": {[]int{unix.CAP_BPF, unix.CAP_PERFMON}, []string{"opened"}},
		"without CAP_PERFMON":                {[]int{unix.CAP_BPF}, []string{"permission=true", "lacks CAP_PERFMON:"}},
		"without any":                        {nil, []string{"permission=true", "lacks CAP_BPF and CAP_PERFMON:"}},
	} {
		t.Run(name, func(t *testing.T) {
			keep, err := json.Marshal(r.keep)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), rightsEnv+"="+string(keep))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, want := range r.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("%s; want %q", out, want)
				}
			}
			t.Logf("%s", out)
		})
	}
}
