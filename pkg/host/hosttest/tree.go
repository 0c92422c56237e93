// Package hosttest makes fake machines for tests: directories with the files of /proc, /sys and the control
// group hierarchies that package host reads. The named machines are modelled on real ones.
package hosttest

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// Tree is a fake machine below a directory that goes with the test.
type Tree struct {
	t       testing.TB
	dir     string
	mounts  []string
	cgroups layout
}

// New is a machine with nothing but its directory.
func New(t testing.TB) *Tree {
	t.Helper()
	return &Tree{t: t, dir: MemoryDir(t)}
}

// MemoryDir makes a directory for the duration of the test, in memory where the machine has a file system there: tests make and sync some
// hundred thousand files, which takes ten times as long on a disk.
func MemoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "mainspring-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Dir is the machine's root.
func (tr *Tree) Dir() string { return tr.dir }

// Host is the machine.
func (tr *Tree) Host() host.Host { return host.New(tr.dir) }

// Write makes a file with that text and a newline, and the directories above it.
func (tr *Tree) Write(path, text string) {
	tr.t.Helper()
	tr.WriteBytes(path, []byte(text+"\n"))
}

// WriteBytes makes a file with exactly that content.
func (tr *Tree) WriteBytes(path string, data []byte) {
	tr.t.Helper()
	full := filepath.Join(tr.dir, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		tr.t.Fatalf("making fake machine: %v", err)
	}
	if err := os.WriteFile(full, data, 0o644); err != nil { //nolint:gosec // a fake of world-readable files
		tr.t.Fatalf("making fake machine: %v", err)
	}
}

// Mkdir makes a directory and those above it.
func (tr *Tree) Mkdir(path string) {
	tr.t.Helper()
	if err := os.MkdirAll(filepath.Join(tr.dir, path), 0o755); err != nil {
		tr.t.Fatalf("making fake machine: %v", err)
	}
}

// Remove takes a file or directory away.
func (tr *Tree) Remove(path string) {
	tr.t.Helper()
	if err := os.RemoveAll(filepath.Join(tr.dir, path)); err != nil {
		tr.t.Fatalf("changing fake machine: %v", err)
	}
}

// Read is a file's text without the white space around it.
func (tr *Tree) Read(path string) string {
	tr.t.Helper()
	data, err := os.ReadFile(filepath.Join(tr.dir, path))
	if err != nil {
		tr.t.Fatalf("reading fake machine: %v", err)
	}
	return strings.TrimSpace(string(data))
}

// Mount adds a line to the machine's mountinfo; root is the directory of the file system that is mounted.
func (tr *Tree) Mount(root, point, fstype, options string) {
	tr.t.Helper()
	if len(tr.mounts) == 0 {
		tr.mounts = []string{"20 1 254:0 / / rw,relatime - ext4 /dev/vda rw"}
	}
	id := 20 + len(tr.mounts)
	tr.mounts = append(tr.mounts, fmt.Sprintf("%d %d 0:%d %s %s rw,relatime shared:%d - %s %s rw%s",
		id, tr.parent(point), id, root, point, id, fstype, fstype, options))
	text := strings.Join(tr.mounts, "\n")
	tr.Write("proc/1/mountinfo", text)
	tr.Write("proc/self/mountinfo", text)
}

// parent is the mount that a new one at point covers or lies in: the last with the longest fitting point.
func (tr *Tree) parent(point string) int {
	best, id := "", 20
	for _, line := range tr.mounts {
		fields := strings.Fields(line)
		at := fields[4]
		if (at == "/" || at == point || strings.HasPrefix(point, at+"/")) && len(at) >= len(best) {
			best = at
			id, _ = strconv.Atoi(fields[0])
		}
	}
	return id
}

// CPU is one of a fake machine's.
type CPU struct {
	ID, NUMA, Package int
	// Siblings is the kernel's list of the threads of its hardware core; empty: itself alone.
	Siblings string
	Offline  bool
}

// CPUs gives the machine its CPUs, which are all that it can have.
func (tr *Tree) CPUs(cpus ...CPU) {
	tr.t.Helper()
	var present, online, offline []int
	nodes := map[int][]int{}
	for _, c := range cpus {
		present = append(present, c.ID)
		if c.Offline {
			offline = append(offline, c.ID)
			tr.Mkdir(fmt.Sprintf("sys/devices/system/cpu/cpu%d", c.ID))
			continue
		}
		online = append(online, c.ID)
		nodes[c.NUMA] = append(nodes[c.NUMA], c.ID)
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/", c.ID)
		siblings := c.Siblings
		if siblings == "" {
			siblings = strconv.Itoa(c.ID)
		}
		tr.Write(dir+"physical_package_id", strconv.Itoa(c.Package))
		tr.Write(dir+"thread_siblings_list", siblings)
	}
	for name, list := range map[string][]int{"present": present, "possible": present, "online": online, "offline": offline, "isolated": nil} {
		tr.Write("sys/devices/system/cpu/"+name, host.FormatCPUList(list))
	}
	for node, list := range nodes {
		tr.Write(fmt.Sprintf("sys/devices/system/node/node%d/cpulist", node), host.FormatCPUList(list))
	}
	tr.Stat(host.FormatCPUList(online), 100, 900)
}

// Stat writes /proc/stat with CPUs that have each been busy and idle for so many ticks.
func (tr *Tree) Stat(cpus string, busy, idle uint64) {
	tr.t.Helper()
	list, err := host.ParseCPUList(cpus)
	if err != nil {
		tr.t.Fatalf("making fake machine: %v", err)
	}
	n := uint64(len(list))
	lines := []string{fmt.Sprintf("cpu  %d 0 0 %d 0 0 0 0 0 0", n*busy, n*idle)}
	for _, cpu := range list {
		lines = append(lines, fmt.Sprintf("cpu%d %d 0 0 %d 0 0 0 0 0 0", cpu, busy, idle))
	}
	tr.Write("proc/stat", strings.Join(append(lines, "intr 1 2 3", "ctxt 4", "btime 5"), "\n"))
}

// Config gives the kernel's options, one in a line, packed in /proc/config.gz.
func (tr *Tree) Config(lines ...string) {
	tr.t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write([]byte(strings.Join(lines, "\n") + "\n"))
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		tr.t.Fatalf("making fake machine: %v", err)
	}
	tr.WriteBytes("proc/config.gz", packed.Bytes())
}

// BTF gives the kernel type information that has those names and nothing else.
func (tr *Tree) BTF(names ...string) {
	tr.t.Helper()
	text := "\x00" + strings.Join(names, "\x00") + "\x00"
	header := []byte{0x9f, 0xeb, 1, 0, 24, 0, 0, 0 /* types */, 0, 0, 0, 0, 0, 0, 0, 0 /* strings */, 0, 0, 0, 0, byte(len(text)), byte(len(text) >> 8), 0, 0}
	tr.WriteBytes("sys/kernel/btf/vmlinux", append(header, text...))
}
