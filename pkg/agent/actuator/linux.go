package actuator

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// linux is the kernel that the process runs on.
type linux struct{ host host.Host }

func (linux) open(dir string) (files, error) {
	fd, err := retry(func() (int, error) {
		return unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return nil, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	return &linuxFiles{fd: fd, inode: st.Ino}, nil
}

func (linux) inode(dir string) (uint64, error) { return host.ID(dir) }

func (linux) children(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// tickUs is the resolution of the clock that the tick updates: known without the kernel's options, which are seldom at hand in a container.
func (linux) tickUs() int64 {
	var resolution unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &resolution); err != nil {
		return slowestTickUs
	}
	return (resolution.Nano() + 999) / 1000
}

// slowestTickUs is that of CONFIG_HZ=100, the slowest there is.
const slowestTickUs = 10_000

func (linux) writable(dir string) error {
	return unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK)
}

func (linux) mkdir(dir string) error { return os.Mkdir(dir, 0o755) }
func (linux) rmdir(dir string) error { return unix.Rmdir(dir) }

// attr is read again where it is torn: the kernel reads policy and priority one after the other, and either may be changed in between.
func (linux) attr(tid int, a *unix.SchedAttr) error {
	const tries = 8
	for range tries {
		_, _, e := unix.RawSyscall6(unix.SYS_SCHED_GETATTR, uintptr(tid), uintptr(unsafe.Pointer(a)), unix.SizeofSchedAttr, 0, 0, 0)
		if e != 0 {
			return e
		}
		if realtime(a.Policy) == (a.Priority != 0) {
			break
		}
	}
	return nil
}

func (linux) setAttr(tid int, a *unix.SchedAttr) error {
	a.Size = unix.SizeofSchedAttr
	_, _, e := unix.RawSyscall(unix.SYS_SCHED_SETATTR, uintptr(tid), uintptr(unsafe.Pointer(a)), 0)
	runtime.KeepAlive(a)
	if e != 0 {
		return e
	}
	return nil
}

func (l linux) started(tid int) (uint64, error) {
	text, err := os.ReadFile(l.host.Proc(strconv.Itoa(tid), "stat"))
	if err != nil {
		return 0, err
	}
	return parseStartTime(string(text))
}

func (l linux) progress(tid int) (usedNs uint64, state byte, err error) {
	stat, err := os.ReadFile(l.host.Proc(strconv.Itoa(tid), "stat"))
	if err != nil {
		return 0, 0, err
	}
	times, err := os.ReadFile(l.host.Proc(strconv.Itoa(tid), "schedstat"))
	if err != nil {
		return 0, 0, err
	}
	return parseProgress(string(stat), string(times))
}

// borrow ends the thread afterwards, and returns when the kernel has it no more: whatever was done to it ends with it, and the process's threads
// are again all of one policy. The process's first thread never ends, so it lends another.
func (l linux) borrow(do func(tid int, home map[string]string) error) error {
	done := make(chan error)
	tid := 0
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			defer runtime.UnlockOSThread()
			done <- l.borrow(do)
			return
		}
		tid = unix.Gettid()
		// It has our own policy, which may be real-time, and could not enter a group without budget.
		_, err := demote(l, unix.Gettid())
		// The process may keep to the host's cores; SCHED_DEADLINE wants a thread to be allowed on all of its root domain.
		err = errors.Join(err, unix.SchedSetaffinity(0, everyCPU()))
		var text []byte
		if err == nil {
			text, err = os.ReadFile(l.host.Proc("thread-self", "cgroup"))
		}
		if err == nil {
			err = do(tid, parseMembership(string(text)))
		}
		done <- err
	}()
	err := <-done
	if tid != 0 {
		l.awaitEnd(tid)
	}
	return err
}

// A thread that ends is gone within microseconds, unless others hold its core.
const (
	endEvery = time.Millisecond
	endTries = 1000
)

// awaitEnd waits until a thread of this process has ended, for a second at most: one that has not by then changes nothing of what it was borrowed for.
func (l linux) awaitEnd(tid int) {
	for range endTries {
		if errors.Is(unix.Tgkill(os.Getpid(), tid, 0), unix.ESRCH) {
			return
		}
		l.pause(endEvery)
	}
}

// everyCPU is as wide as a mask gets: the kernel cuts it to what the thread's cpuset allows.
func everyCPU() *unix.CPUSet {
	var all unix.CPUSet
	for i := range len(all) * 64 {
		all.Set(i)
	}
	return &all
}

func (linux) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// linuxFiles holds a directory open: names are looked up below it, so a rename does not redirect them to another group.
type linuxFiles struct {
	fd    int
	inode uint64
	v2    atomic.Bool // threads are listed in cgroup.threads
	kept  map[string]int
}

func (f *linuxFiles) id() uint64 { return f.inode }

func (f *linuxFiles) at(name string, flags int) (int, error) {
	return retry(func() (int, error) {
		return unix.Openat(f.fd, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
}

func (f *linuxFiles) keep(names ...string) {
	f.kept = make(map[string]int, len(names))
	for _, name := range names {
		if fd, err := f.at(name, unix.O_RDONLY); err == nil {
			f.kept[name] = fd
		}
	}
}

// reread a file that is kept open. Control files are short, but for those that have a number for each of many CPUs.
func reread(fd int) (string, error) {
	var short [4096]byte
	for buf := short[:]; ; buf = make([]byte, 2*len(buf)) {
		n, err := retry(func() (int, error) { return unix.Pread(fd, buf, 0) })
		if n < len(buf) {
			return strings.TrimSpace(string(buf[:max(0, n)])), err
		}
	}
}

func (f *linuxFiles) read(name string) (string, error) {
	if fd, ok := f.kept[name]; ok {
		text, err := reread(fd)
		if err != nil {
			return "", &os.PathError{Op: "read", Path: name, Err: err}
		}
		return text, nil
	}
	fd, err := f.at(name, unix.O_RDONLY)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: name, Err: err}
	}
	text, err := readAll(fd)
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return "", &os.PathError{Op: "read", Path: name, Err: err}
	}
	return strings.TrimSpace(text), nil
}

// readAll reads a control file; os.File would first ask what kind of file it is.
func readAll(fd int) (string, error) {
	var text []byte
	for buf := make([]byte, 512); ; {
		n, err := retry(func() (int, error) { return unix.Read(fd, buf) })
		if err != nil || n == 0 {
			return string(text), err
		}
		text = append(text, buf[:n]...)
	}
}

func (f *linuxFiles) write(name, value string) error {
	c, err := f.control(name)
	if err != nil {
		return err
	}
	return errors.Join(c.write([]byte(value)), c.close())
}

func (f *linuxFiles) control(name string) (control, error) {
	fd, err := f.at(name, unix.O_WRONLY)
	if err != nil {
		return nil, err
	}
	return &linuxControl{fd: fd}, nil
}

func (f *linuxFiles) close() error {
	err := unix.Close(f.fd)
	for _, fd := range f.kept {
		err = errors.Join(err, unix.Close(fd))
	}
	return err
}

// list opens the file anew each time: v1 keeps the list that a descriptor was first given for a second
// after its last use, so that one which is kept open would never see a new thread.
func (f *linuxFiles) list(into []int32, buf []byte) ([]int32, error) {
	fd, e := f.openTasks()
	if e != 0 {
		return into[:0], typed(e)
	}
	defer func() { _, _, _ = unix.RawSyscall(unix.SYS_CLOSE, fd, 0, 0) }()
	into, partial := into[:0], int32(0)
	for {
		n, _, e := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
		if e != 0 {
			return into, typed(e)
		}
		if n == 0 {
			return into, nil
		}
		into, partial = appendNumbers(into, partial, buf[:n])
	}
}

// Names of the file that lists threads, NUL-terminated for a system call without a copy.
var (
	tasksV1 = [...]byte{'t', 'a', 's', 'k', 's', 0}
	tasksV2 = [...]byte{'c', 'g', 'r', 'o', 'u', 'p', '.', 't', 'h', 'r', 'e', 'a', 'd', 's', 0}
)

// openTasks opens the list of threads by the name that it has here.
func (f *linuxFiles) openTasks() (uintptr, unix.Errno) {
	name := &tasksV1[0]
	if f.v2.Load() {
		name = &tasksV2[0]
	}
	fd, _, e := unix.RawSyscall6(unix.SYS_OPENAT, uintptr(f.fd), uintptr(unsafe.Pointer(name)), unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0)
	if e == unix.ENOENT && f.v2.CompareAndSwap(false, true) {
		return f.openTasks()
	}
	return fd, e
}

type linuxControl struct{ fd int }

// write uses RawSyscall, which does not tell Go's scheduler: the files' handlers take a microsecond and
// the thread must not lose its place to another goroutine meanwhile.
func (c *linuxControl) write(value []byte) error {
	for {
		_, _, e := unix.RawSyscall6(unix.SYS_PWRITE64, uintptr(c.fd), uintptr(unsafe.Pointer(&value[0])), uintptr(len(value)), 0, 0, 0)
		switch e {
		case 0:
			return nil
		case unix.EINTR:
			continue
		}
		return e
	}
}

func (c *linuxControl) close() error { return unix.Close(c.fd) }

// retry a call that a signal may interrupt.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
