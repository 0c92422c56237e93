package ebpf

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// descriptor is an open file that Close closes.
type descriptor int

// Close implements io.Closer.
func (d descriptor) Close() error { return unix.Close(int(d)) }

// attachSleep has a program run whenever a thread enters clock_nanosleep, until the descriptor is closed.
func attachSleep(program *ebpf.Program) (io.Closer, error) {
	id, err := sleepTracepoint()
	if err != nil {
		return nil, fmt.Errorf("finding the tracepoint of clock_nanosleep: %w", err)
	}
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT, Config: id, Sample_type: unix.PERF_SAMPLE_RAW, Sample: 1, Wakeup: 1}
	// One event is enough: programs of a tracepoint run on all cores.
	fd, err := unix.PerfEventOpen(&attr, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("opening the tracepoint of clock_nanosleep: %w", err)
	}
	err = unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, program.FD())
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("attaching to the tracepoint of clock_nanosleep: %w", err), unix.Close(fd))
	}
	return descriptor(fd), nil
}

// sleepTracepoint is the number of the tracepoint. Where tracefs is not mounted, it is read from a mount that
// only one short-lived thread sees, which takes CAP_SYS_ADMIN.
func sleepTracepoint() (uint64, error) {
	root := host.New("/").Sys("kernel", "tracing")
	id, err := readTracepoint(root)
	if !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err = mountAlone(root); err == nil {
			id, err = readTracepoint(root)
		}
	}()
	<-done
	return id, err
}

// mountAlone mounts tracefs for the calling thread only.
func mountAlone(dir string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return fmt.Errorf("tracefs is not mounted at %s, and making a mount namespace: %w", dir, err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keeping mounts to the thread: %w", err)
	}
	if err := unix.Mount("tracefs", dir, "tracefs", 0, ""); err != nil {
		return fmt.Errorf("tracefs is not mounted at %s, and mounting it: %w", dir, err)
	}
	return nil
}

// readTracepoint reads the tracepoint's number from tracefs.
func readTracepoint(root string) (uint64, error) {
	path := root + "/events/syscalls/sys_enter_clock_nanosleep/id"
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	id, err := parseTracepoint(string(text))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return id, nil
}

// parseTracepoint takes a number above 0 of the kernel's type for it, int.
func parseTracepoint(text string) (uint64, error) {
	id, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31)
	if err != nil || id == 0 {
		return 0, fmt.Errorf("tracepoint %q; want a number above 0", text)
	}
	return id, nil
}
