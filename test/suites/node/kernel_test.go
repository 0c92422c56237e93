package node_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

// What the kernel says, read by the test itself.

// kernelFile is the text of a file of the group in the controller's hierarchy.
func kernelFile(controller, group, file string) string {
	GinkgoHelper()
	text, err := readKernelFile(controller, group, file)
	Expect(err).NotTo(HaveOccurred())
	return text
}

// readKernelFile returns an error that isGone for a group that ended.
func readKernelFile(controller, group, file string) (string, error) {
	cgroups, err := machine.Cgroups()
	if err != nil {
		return "", err
	}
	dir, err := cgroups.Dir(controller, group)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(dir, file))
	return strings.TrimSpace(string(text)), err
}

// isGone says whether the error is that of a group that ended before, or while, its file was read.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }

// processes are the process IDs in the group.
func processes(group string) []int {
	GinkgoHelper()
	return numbers(kernelFile("cpu", group, "cgroup.procs"))
}

// threads are the thread IDs in the group.
func threads(group string) []int {
	GinkgoHelper()
	return numbers(kernelFile("cpu", group, "tasks"))
}

func numbers(text string) []int {
	GinkgoHelper()
	var list []int
	for _, field := range strings.Fields(text) {
		n, err := strconv.Atoi(field)
		Expect(err).NotTo(HaveOccurred())
		list = append(list, n)
	}
	return list
}

// realtimeThreads are the threads in the group that have policy SCHED_FIFO.
func realtimeThreads(group string) []int {
	GinkgoHelper()
	var list []int
	for _, thread := range threads(group) {
		attr, err := unix.SchedGetAttr(thread, 0)
		if err == nil && attr.Policy == unix.SCHED_FIFO {
			list = append(list, thread)
		}
	}
	return list
}

// budget is what the kernel gives a group in every period, in microseconds.
func budget(group string) int64 {
	GinkgoHelper()
	return int64(numbers(kernelFile("cpu", group, "cpu.rt_runtime_us"))[0])
}

// cores are those that a group may run on.
func cores(group string) string {
	GinkgoHelper()
	return kernelFile("cpuset", group, "cpuset.cpus")
}

// budgets are those of the group and of all below it that have any, by path. Containers may end meanwhile.
func budgets(group string) map[string]int64 {
	GinkgoHelper()
	found := map[string]int64{}
	for _, g := range groupsBelow(group) {
		text, err := readKernelFile("cpu", g, "cpu.rt_runtime_us")
		if isGone(err) {
			continue
		}
		Expect(err).NotTo(HaveOccurred())
		if us := numbers(text)[0]; us != 0 {
			found[g] = int64(us)
		}
	}
	return found
}

// groupsBelow are the group and those below it, as paths from the hierarchy's root.
func groupsBelow(group string) []string {
	GinkgoHelper()
	cgroups, err := machine.Cgroups()
	Expect(err).NotTo(HaveOccurred())
	root, err := cgroups.Dir("cpu", "/")
	Expect(err).NotTo(HaveOccurred())
	var all []string
	Expect(filepath.WalkDir(filepath.Join(root, group), func(path string, entry fs.DirEntry, err error) error {
		if isGone(err) {
			return nil // it ended meanwhile
		}
		if err == nil && entry.IsDir() {
			all = append(all, strings.TrimPrefix(path, root))
		}
		return err
	})).To(Succeed())
	return all
}

// signal sends the container's program a signal.
func signal(group string, s syscall.Signal) {
	GinkgoHelper()
	for _, pid := range processes(group) {
		Expect(syscall.Kill(pid, s)).To(Succeed())
	}
}

// overrun has the container's program work for longer than its budget in every period, behave for as long
// as it should.
func overrun(group string) { GinkgoHelper(); signal(group, syscall.SIGUSR1) }
func behave(group string)  { GinkgoHelper(); signal(group, syscall.SIGUSR2) }
