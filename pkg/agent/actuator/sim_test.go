package actuator

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/host/hosttest"
)

// errKilled is what every call of a process returns once it was killed.
var errKilled = errors.New("the process was killed")

// simKernel keeps a tree of control groups in files, by the kernel's rules: it refuses what the kernel
// refuses, with the same error numbers.
type simKernel struct {
	t    *testing.T
	cg   host.Cgroups
	host host.Host
	// threads by number.
	threads map[int]*simThread
	// dying is the bandwidth of removed groups that is not given back yet.
	dying []int64
	// writes made, and the one at which the process is killed; 0 is never.
	writes, killAt int
	killed         bool
	log            []string
	// stepping is called before a change, with its number.
	stepping func(write int)
	// closed: groups cannot be made at the top.
	closed bool
	// readOnly: the hierarchies are mounted so.
	readOnly bool
	// refuseAll: no thread may become real-time.
	refuseAll bool
	// fullOfDeadlines: no thread may become a deadline thread any more.
	fullOfDeadlines bool
	// refuse writes to files of this name.
	refuse string
	// changing is called before a thread is changed, reading before it is read.
	changing, reading func(tid int)
	pausing           func()
	// looked counts how often the inode of each directory was asked for.
	looked map[string]int
	// stuck threads want to run and do not, but for what they used.
	stuck  map[int]bool
	usedNs map[int]uint64
	// pinned threads have narrowed their own affinity.
	pinned    map[int]bool
	newThread int
	// opened are the directories that were.
	opened []*simFiles
}

// simTree is a fake machine with a kernel.
type simTree struct {
	*simKernel
	tree  *hosttest.Tree
	state string
	clock int64
}

// newSim makes a machine with two cores; layout mounts its control groups.
func newSim(t *testing.T, layout func(*hosttest.Tree)) *simTree {
	t.Helper()
	tree := hosttest.New(t)
	tree.CPUs(hosttest.CPU{ID: 0}, hosttest.CPU{ID: 1}, hosttest.CPU{ID: 2}, hosttest.CPU{ID: 3})
	layout(tree)
	tree.Write("/proc/sys/kernel/sched_rt_runtime_us", "950000\n")
	tree.Write("/proc/sys/kernel/sched_rt_period_us", "1000000\n")
	tree.Write("/proc/sys/kernel/random/boot_id", "boot-1\n")
	cg, err := tree.Host().Cgroups()
	if err != nil {
		t.Fatal(err)
	}
	return &simTree{
		simKernel: &simKernel{t: t, cg: cg, host: tree.Host(), threads: map[int]*simThread{}, looked: map[string]int{}, usedNs: map[int]uint64{}, newThread: 100},
		tree:      tree, state: hosttest.MemoryDir(t),
	}
}

// probe opens a backend as a new process would.
func (s *simTree) probe(want string) Backend {
	s.t.Helper()
	b, findings, err := s.tryProbe(want)
	if err != nil {
		s.t.Fatalf("Probe: %v (%v)", err, findings)
	}
	return b
}

func (s *simTree) tryProbe(want string) (Backend, []Finding, error) {
	return Probe(ProbeOptions{
		Host: s.host, Want: want, StateDir: s.state, Cores: []int{0, 1, 2, 3},
		Now: func() int64 { return s.clock }, kernel: s.simKernel,
	})
}

// spawn a thread in a group of every hierarchy.
func (s *simTree) spawn(group string, policy uint32) int {
	s.newThread++
	th := &simThread{attr: unix.SchedAttr{Policy: policy}, groups: map[string]string{}, started: uint64(s.newThread)}
	for _, c := range []string{"cpu", "cpuset"} {
		if dir, err := s.cg.Dir(c, group); err == nil {
			th.groups[s.root(c)] = dir
		}
	}
	s.threads[s.newThread] = th
	return s.newThread
}

func (s *simKernel) root(controller string) string {
	dir, err := s.cg.Dir(controller, "/")
	if err != nil {
		return ""
	}
	return dir
}

// get a file of a group, "" when it is not there.
func (s *simTree) get(controller, group, file string) string {
	dir, err := s.cg.Dir(controller, group)
	if err != nil {
		return ""
	}
	return slurp(filepath.Join(dir, file))
}

func slurp(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// step counts a change, and kills the process before the one it was to be killed at.
func (k *simKernel) step(what string) error {
	if k.killed {
		return errKilled
	}
	k.writes++
	if k.killAt != 0 && k.writes >= k.killAt {
		k.killed = true
		return errKilled
	}
	if k.stepping != nil {
		k.stepping(k.writes)
	}
	k.log = append(k.log, what)
	return nil
}

func (k *simKernel) open(dir string) (files, error) {
	if k.killed {
		return nil, errKilled
	}
	inode, err := host.ID(dir)
	if err != nil {
		return nil, err
	}
	f := &simFiles{k: k, dir: dir, inode: inode}
	k.opened = append(k.opened, f)
	return f, nil
}

func (k *simKernel) inode(dir string) (uint64, error) {
	k.looked[dir]++
	return linux{}.inode(dir)
}

func (k *simKernel) children(dir string) ([]string, error) { return linux{}.children(dir) }

func (k *simKernel) writable(string) error {
	if k.readOnly {
		return unix.EROFS
	}
	return nil
}

func (k *simKernel) mkdir(dir string) error {
	if err := k.writable(dir); err != nil {
		return err
	}
	if err := k.step("mkdir " + dir); err != nil {
		return err
	}
	if k.closed && (filepath.Dir(dir) == k.root("cpu") || filepath.Dir(dir) == k.root("cpuset")) {
		return unix.EACCES
	}
	return k.makeGroup(dir)
}

// makeGroup gives a new group the files of a group beside or above it, with the values of a new one.
func (k *simKernel) makeGroup(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	values := map[string]string{
		rtRuntime: "0", rtPeriod: "1000000", cfsQuota: "-1", cfsPeriod: "100000", cfsShares: "1024", "tasks": "",
		"cgroup.procs": "", cpuMax: "max 100000", cpuWeight: "100", rtMax: "max 0", rtMulti: "0 0 0 0",
		cpusetCPUs: "", cpusetMems: "", "cgroup.threads": "", "cpuset.cpus.effective": "0-3",
	}
	for file, value := range values {
		if k.hasFile(filepath.Dir(dir), file) {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// hasFile says that groups of this hierarchy have a file; v2's root lacks most.
func (k *simKernel) hasFile(parent, file string) bool {
	if _, err := os.Stat(filepath.Join(parent, file)); err == nil {
		return true
	}
	children, _ := k.children(parent)
	for _, c := range children {
		if _, err := os.Stat(filepath.Join(parent, c, file)); err == nil {
			return true
		}
	}
	return false
}

func (k *simKernel) rmdir(dir string) error {
	if err := k.step("rmdir " + dir); err != nil {
		return err
	}
	for _, th := range k.threads {
		if slices.Contains(values(th.groups), dir) {
			return unix.EBUSY
		}
	}
	return k.removeGroup(dir)
}

// removeGroup gives the group's bandwidth back only two pauses later.
func (k *simKernel) removeGroup(dir string) error {
	if runtime, period := number(dir, rtRuntime), number(dir, rtPeriod); runtime > 0 {
		k.dying = append(k.dying, ratio(runtime, period), 0)
	}
	return os.RemoveAll(dir)
}

func values(m map[string]string) []string {
	var out []string
	for _, v := range m {
		out = append(out, v)
	}
	return out
}
