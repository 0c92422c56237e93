package process_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/process"
)

// role makes this test binary play the parent of TestChildDiesWithItsParent.
const role = "MAINSPRING_PROCESS_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(role) != "parent" {
		os.Exit(m.Run())
	}
	p, err := process.Start(shell(os.Getenv("LOG"), "sleep 600"))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(p.PID())
	<-p.Exited()
}

func shell(log, script string) process.Command {
	return process.Command{Name: "child", Path: "/bin/sh", Args: []string{"-c", script}, Log: log}
}

func start(t *testing.T, script string) *process.Process {
	t.Helper()
	p, err := process.Start(shell(filepath.Join(t.TempDir(), "log"), script))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func TestDiedTellsTheEndOfItsOwnLife(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, []byte("from the life before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := process.Start(shell(log, "echo listen: address already in use; exit 3"))
	if err != nil {
		t.Fatal(err)
	}
	died := p.Died()
	for _, want := range []string{"child", "exit status 3", log, "address already in use"} {
		if !strings.Contains(died.Error(), want) {
			t.Errorf("%q does not tell %q", died, want)
		}
	}
	if strings.Contains(died.Error(), "life before") {
		t.Errorf("%q tells of another life", died)
	}
	if !process.AddressInUse(fmt.Errorf("starting: %w", died)) || process.AddressInUse(errors.New("address already in use")) {
		t.Error("AddressInUse is not about the child's own words")
	}
}

func TestStopAsksFirst(t *testing.T) {
	p := start(t, `trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.01; done`)
	waitForOutput(t, p, "up")
	if err := p.Stop(time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := p.Err(); err != nil || !strings.Contains(p.Tail(), "asked") || p.Running() {
		t.Errorf("ended with %v, running %v, log %q", err, p.Running(), p.Tail())
	}
	if err := p.Stop(time.Minute); err != nil {
		t.Errorf("stopping what has ended: %v", err)
	}
}

func TestStopKillsWhatDoesNotListen(t *testing.T) {
	p := start(t, `trap '' TERM; echo up; while :; do sleep 0.01; done`)
	waitForOutput(t, p, "up")
	if err := p.Stop(50 * time.Millisecond); err == nil || !strings.Contains(err.Error(), "was killed") {
		t.Errorf("got %v", err)
	}
	if p.Running() {
		t.Error("it still runs")
	}
}

func TestStartNamesWhatCannotBeRun(t *testing.T) {
	_, err := process.Start(process.Command{Name: "child", Path: "/does/not/exist", Log: filepath.Join(t.TempDir(), "log")})
	if err == nil || !strings.Contains(err.Error(), "starting child") {
		t.Errorf("got %v", err)
	}
}

func TestChildDiesWithItsParent(t *testing.T) {
	parent := exec.CommandContext(t.Context(), os.Args[0])
	parent.Env = append(os.Environ(), role+"=parent", "LOG="+filepath.Join(t.TempDir(), "log"))
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the parent said %q", line)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed
	waitFor(t, "the child to die", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || zombie(pid) })
}

// zombie tells whether pid has ended and only its parent has not been told yet.
func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func TestFreePortsDiffer(t *testing.T) {
	ports, err := process.FreePorts(t.Context(), 20)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, p := range ports {
		if seen[p] {
			t.Errorf("port %d was given twice", p)
		}
		seen[p] = true
	}
}

// Between two lives of a program its port is nobody else's: six processes of a suite look for ports at the same time.
func TestPortsAreKept(t *testing.T) {
	ports, err := process.FreePorts(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	free := func() bool { // as FreePorts of another process sees it
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		return unix.Bind(fd, &unix.SockaddrInet4{Port: ports[0], Addr: [4]byte{127, 0, 0, 1}}) == nil
	}
	if free() {
		t.Errorf("port %d may be given to somebody else before its program is there", ports[0])
	}
	for _, host := range []string{"127.0.0.1", "", "127.0.0.1"} {
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(host, strconv.Itoa(ports[0])))
		if err != nil {
			t.Fatalf("who was given port %d cannot listen on %q: %v", ports[0], host, err)
		}
		if err := listener.Close(); err != nil {
			t.Fatal(err)
		}
		if free() {
			t.Errorf("port %d may be given to somebody else when its program is gone", ports[0])
		}
	}
}

func waitForOutput(t *testing.T, p *process.Process, text string) {
	t.Helper()
	waitFor(t, "output "+text, func() bool { return strings.Contains(p.Tail(), text) })
}

func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
}

func TestDirectoryAndFiles(t *testing.T) {
	reading, writing, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := shell(filepath.Join(t.TempDir(), "log"), "pwd >&3")
	c.Dir, c.Files = dir, []*os.File{writing}
	if _, err := process.Start(c); err != nil {
		t.Fatal(err)
	}
	_ = writing.Close()
	line, err := bufio.NewReader(reading).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != dir {
		t.Errorf("the child said %q, %v; want %s", line, err, dir)
	}
}
