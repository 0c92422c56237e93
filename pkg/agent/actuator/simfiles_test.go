package actuator

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// simFiles are those of one group, until it is removed.
type simFiles struct {
	k     *simKernel
	dir   string
	inode uint64
}

func (f *simFiles) keep(...string) {}

func (f *simFiles) id() uint64 { return f.inode }

func (f *simFiles) alive() error {
	if f.k.killed {
		return errKilled
	}
	if inode, err := host.ID(f.dir); err != nil || inode != f.inode {
		return unix.ENODEV
	}
	return nil
}

func (f *simFiles) read(name string) (string, error) {
	if err := f.alive(); err != nil {
		return "", err
	}
	switch name {
	case "tasks", "cgroup.procs", "cgroup.threads":
		return f.taskList(), nil
	case "cpuset.cpus.effective":
		return f.k.effectiveCPUs(f.dir), nil
	}
	text, err := os.ReadFile(filepath.Join(f.dir, name))
	return strings.TrimSpace(string(text)), err
}

func (f *simFiles) taskList() string {
	var out []string
	for tid, th := range f.k.threads {
		if slices.Contains(values(th.groups), f.dir) {
			out = append(out, strconv.Itoa(tid))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// effectiveCPUs of v2: what the group asks for of what is above, or all of it.
func (k *simKernel) effectiveCPUs(dir string) string {
	if dir == k.root("cpuset") {
		return "0-3"
	}
	up, _ := host.ParseCPUList(k.effectiveCPUs(filepath.Dir(dir)))
	own, _ := host.ParseCPUList(slurp(filepath.Join(dir, cpusetCPUs)))
	both := slices.DeleteFunc(own, func(c int) bool { return !slices.Contains(up, c) })
	if len(both) == 0 {
		both = up
	}
	return host.FormatCPUList(both)
}

func (f *simFiles) list(into []int32, _ []byte) ([]int32, error) {
	text, err := f.read("tasks")
	into = into[:0]
	for _, field := range strings.Fields(text) {
		tid, _ := strconv.Atoi(field)
		into = append(into, int32(tid))
	}
	return into, typed(err)
}

func (f *simFiles) write(name, value string) error {
	value = strings.TrimSpace(value)
	if err := f.alive(); err != nil {
		return err
	}
	if err := f.k.step(fmt.Sprintf("%s=%s", filepath.Join(f.dir, name), value)); err != nil {
		return err
	}
	if name == f.k.refuse {
		return unix.EACCES
	}
	if err := f.k.writable(f.dir); err != nil {
		return err
	}
	if name == "tasks" || name == "cgroup.threads" {
		return f.k.moveThread(f.dir, value)
	}
	old, err := os.ReadFile(filepath.Join(f.dir, name))
	if err != nil {
		return unix.ENOENT
	}
	stored, err := f.k.accept(f.dir, name, value, strings.TrimSpace(string(old)))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(f.dir, name), []byte(stored+"\n"), 0o600)
}

func (k *simKernel) moveThread(dir, value string) error {
	tid, err := strconv.Atoi(value)
	th := k.threads[tid]
	if err != nil || th == nil {
		return unix.ESRCH
	}
	for _, c := range []string{"cpu", "cpuset"} {
		if root := k.root(c); dir == root || strings.HasPrefix(dir, root+"/") {
			th.groups[root] = dir
			return nil
		}
	}
	return unix.EINVAL
}

func (f *simFiles) control(name string) (control, error) {
	if _, err := f.read(name); err != nil {
		return nil, err
	}
	return &simControl{f, name}, nil
}

func (f *simFiles) close() error {
	f.k.opened = slices.DeleteFunc(f.k.opened, func(o *simFiles) bool { return o == f })
	return nil
}

type simControl struct {
	f    *simFiles
	name string
}

func (c *simControl) write(value []byte) error { return c.f.write(c.name, string(value)) }
func (c *simControl) close() error             { return nil }
