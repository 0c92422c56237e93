package standalone_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/agent/standalone"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// breeder makes this test binary a process that makes threads and a child when it is asked to, and says so.
const breeder = "MAINSPRING_STANDALONE_TEST_BREEDER"

func breed() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, unix.SIGUSR1)
	fmt.Println("waits")
	<-asked
	held := make(chan int)
	const threads = 8 // more than wait idle
	for range threads {
		go func() {
			runtime.LockOSThread()
			held <- unix.Gettid()
			select {}
		}()
	}
	for range threads {
		<-held
	}
	child := exec.Command("sleep", "300")
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := child.Start()
	fmt.Println("bred", err)
	_ = child.Wait()
	select {}
}

// bred is a breeder under test.
type bred struct {
	*exec.Cmd
	t     *testing.T
	lines *bufio.Scanner
}

// startBreeder starts one with a policy, as chrt knows it.
func startBreeder(t *testing.T, policy ...string) *bred {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := &bred{Cmd: exec.Command("chrt", append(policy, self)...), t: t}
	b.Env = append(os.Environ(), breeder+"=1")
	out, err := b.StdoutPipe()
	if err == nil {
		err = b.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Process.Kill(); _ = b.Wait() })
	b.lines = bufio.NewScanner(out)
	b.expectLine("waits")
	return b
}

func (b *bred) expectLine(want string) {
	b.t.Helper()
	if !b.lines.Scan() || b.lines.Text() != want {
		b.t.Errorf("the process says %q, %v; want %q", b.lines.Text(), b.lines.Err(), want)
	}
}

// schedules are the policies and priorities of the process's threads, and of its children's.
func (b *bred) schedules() map[int]string {
	out := map[int]string{}
	pids, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", b.Process.Pid))
	if err != nil {
		b.t.Error(err)
	}
	for _, dir := range pids {
		text, _ := os.ReadFile(filepath.Join(dir, "children"))
		for _, tid := range append([]string{filepath.Base(dir)}, strings.Fields(string(text))...) {
			n, err := strconv.Atoi(tid)
			if err != nil {
				b.t.Error(err)
				continue
			}
			if a, err := unix.SchedGetAttr(n, 0); err == nil {
				out[n] = fmt.Sprint(a.Policy, " ", a.Priority)
			}
		}
	}
	return out
}

// all says that all threads are scheduled so.
func (b *bred) all(want string) bool {
	for _, got := range b.schedules() {
		if got != want {
			return false
		}
	}
	return true
}

// governed is what the threads have while they are.
const governed = "1 10"

// multiply, once all threads are governed, and see that those made then are, too.
func (b *bred) multiply() {
	b.t.Helper()
	before := b.schedules()
	if err := b.Process.Signal(unix.SIGUSR1); err != nil {
		b.t.Fatal(err)
	}
	b.expectLine("bred <nil>")
	fresh := 0
	for tid, got := range b.schedules() {
		if before[tid] == "" && got == governed {
			fresh++
		}
	}
	if fresh < 2 {
		b.t.Errorf("%d threads have inherited the policy; want some of the process's and a child", fresh)
	}
}

func (b *bred) expect(want string) {
	b.t.Helper()
	for tid, got := range b.schedules() {
		if got != want {
			b.t.Errorf("thread %d has policy and priority %s; want %s as before", tid, got, want)
		}
	}
}

// A process makes threads and a child while it is governed with fifo. They are what they would be without us afterwards, whether the run came to
// its end or the next finishes it.
func TestWhatAMovedProcessMakesIsPutBack(t *testing.T) {
	for _, c := range []struct {
		name, want string
		policy     []string
	}{
		{"ordinary", "0 0", []string{"-o", "0"}},
		{"real-time", "1 30", []string{"-f", "30"}},
	} {
		file := func(pid int) string {
			return fmt.Sprintf("backend: fifo\ncores: [%d]\nservers: [{name: test-breeds, period: 100ms, runtime_low: 20ms, pid: %d}]", lastCore(t), pid)
		}
		t.Run(c.name+" at the end", func(t *testing.T) {
			b := startBreeder(t, c.policy...)
			o := options(t, file(b.Process.Pid))
			before := groupsOf(t, b.Process.Pid)
			ctx, stop := context.WithCancel(t.Context())
			o.Show = func(table.Report, time.Duration) {
				if ctx.Err() == nil && b.all(governed) {
					b.multiply()
					stop()
				}
			}
			if _, err := standalone.Run(ctx, o); err != nil {
				t.Fatal(err)
			}
			b.expect(c.want)
			if after := groupsOf(t, b.Process.Pid); after != before {
				t.Errorf("afterwards the process is in\n%s; want\n%s", after, before)
			}
			expectPutBack(t, "test-breeds")
		})
		t.Run(c.name+" after a kill", func(t *testing.T) {
			b := startBreeder(t, c.policy...)
			o := options(t, fmt.Sprintf("backend: fifo\ncores: [%d]\nservers: [{name: test-next, period: 100ms, runtime_low: 5ms, command: [\"true\"]}]", lastCore(t)))
			before := groupsOf(t, b.Process.Pid)
			killRun(t, o, file(b.Process.Pid), func() {
				for !b.all(governed) && t.Context().Err() == nil {
					runtime.Gosched()
				}
				b.multiply()
			})
			if _, err := standalone.Run(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			b.expect(c.want)
			if after := groupsOf(t, b.Process.Pid); after != before {
				t.Errorf("afterwards the process is in\n%s; want\n%s", after, before)
			}
			expectPutBack(t, "test-breeds")
		})
	}
}
