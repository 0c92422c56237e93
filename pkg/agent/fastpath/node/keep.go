package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/mainspring-rt/mainspring/pkg/agent/sole"
	"github.com/mainspring-rt/mainspring/pkg/host"
)

// keep waits until no other fast path governs any of the cores, whatever state directory that has: each would promise the core as a whole,
// and take what the other did for drift.
//
// The lock is on the root of the cpuset hierarchy, because that is what two who govern one core have in common, by whatever mount: a group is put on
// a core there, and the file systems of control groups are the same in every namespace. A file below /run or a state directory is common only to those who
// mount the same one into their pods, which different releases of the chart do not. An abstract socket's name ends with the network namespace, of which
// a pod has its own, and so does /sys/devices/system/cpu, as sysfs is another file system in each. /proc is another one for each mount.
func (s Settings) keep(ctx context.Context, machine host.Host, cores []int) (*sole.Lock, error) {
	groups, err := machine.Cgroups()
	if err != nil {
		return nil, err
	}
	root, err := groups.Dir("cpuset", "/")
	if err != nil {
		return nil, err
	}
	lock, err := sole.TakeCores(ctx, filepath.Join(root, "cgroup.procs"), cores, sole.Waiting{Clock: s.Clock, Begins: func(holder string) {
		slog.Warn("another fast path governs one of these cores; waiting for it to end", "cores", host.FormatCPUList(cores), "holder", holder)
	}})
	var held *sole.HeldError
	if errors.As(err, &held) {
		return nil, fmt.Errorf("another fast path governs one of --cores %s, and did not end within %s; end it, or give one of the two other cores: %w",
			host.FormatCPUList(cores), sole.Wait, err)
	}
	return lock, err
}
