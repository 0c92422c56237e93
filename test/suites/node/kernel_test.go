package node_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

// What the kernel says, read by the test itself.

// kernelFile is the text of a file of the group in the controller's hierarchy.
func kernelFile(controller, group, file string) string {
	GinkgoHelper()
	cgroups, err := machine.Cgroups()
	Expect(err).NotTo(HaveOccurred())
	dir, err := cgroups.Dir(controller, group)
	Expect(err).NotTo(HaveOccurred())
	text, err := os.ReadFile(filepath.Join(dir, file))
	Expect(err).NotTo(HaveOccurred())
	return strings.TrimSpace(string(text))
}

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
