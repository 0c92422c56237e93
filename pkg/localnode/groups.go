package localnode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

const (
	// goneTimeout bounds how long killed processes and their groups take to go.
	goneTimeout = 10 * time.Second
	goneEvery   = 20 * time.Millisecond
)

// hierarchies are the mount points of all control group hierarchies: a kubelet wants its root group in each.
func (m machine) hierarchies() ([]string, error) {
	mounts, err := m.mounts()
	if err != nil {
		return nil, err
	}
	var points []string
	for _, mount := range mounts {
		whole := mount.Root == "/" || strings.Trim(mount.Root, "/.") == "" // "/../.." is a namespace's root
		if (mount.Type == "cgroup" || mount.Type == "cgroup2") && whole && !slices.Contains(points, mount.Point) {
			points = append(points, mount.Point)
		}
	}
	if len(points) == 0 {
		return nil, errors.New("finding control groups: no hierarchy is mounted")
	}
	return points, nil
}

func (m machine) mounts() ([]host.Mount, error) {
	text, err := os.ReadFile(m.Proc("self", "mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("reading the mounts: %w", err)
	}
	return host.ParseMountInfo(string(text))
}

// makeGroup makes the node's group in every hierarchy, with all cores and memory.
func (m machine) makeGroup(group string) error {
	points, err := m.hierarchies()
	if err != nil {
		return err
	}
	for _, point := range points {
		dir := filepath.Join(point, group)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("making the node's control group: %w", err)
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if err := copyParent(dir, file); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyParent gives a group what the group above has. Hierarchies without the file are left.
func copyParent(dir, file string) error {
	value, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, file), value, 0o644)
	}
	if err != nil {
		return fmt.Errorf("setting %s of the node's control group: %w", file, err)
	}
	return nil
}

// removeGroup kills what runs in the group or below it, and removes it from every hierarchy.
func (m machine) removeGroup(ctx context.Context, group string) error {
	if !strings.HasPrefix(group, "/"+tempPattern) {
		return nil // none was made
	}
	points, err := m.hierarchies()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, goneTimeout)
	defer cancel()
	var errs []error
	for _, point := range points { // before anything is killed in any of them
		errs = append(errs, thawTree(filepath.Join(point, group)))
	}
	for _, point := range points {
		errs = append(errs, removeTree(ctx, filepath.Join(point, group)))
	}
	return errors.Join(errs...)
}

// thawTree has the processes of containers run on that were paused: in the hierarchy of version 1 that freezes, a frozen process does not end when it is
// killed. Other hierarchies have no such file.
func thawTree(dir string) error {
	groups, err := groupsBelow(dir)
	if err != nil {
		return fmt.Errorf("looking for frozen control groups: %w", err)
	}
	for _, g := range groups { // parents first: what is below one that is frozen is, too
		err := thawGroup(g)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ENODEV) { // ENODEV: it has gone meanwhile
			return fmt.Errorf("thawing control group %s: %w", g, err)
		}
	}
	return nil
}

func thawGroup(dir string) error {
	file, err := os.OpenFile(filepath.Join(dir, "freezer.state"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString("THAWED")
	return errors.Join(err, file.Close())
}

// removeTree tries until the group is gone: processes take a moment to end.
func removeTree(ctx context.Context, dir string) error {
	ticker := time.NewTicker(goneEvery)
	defer ticker.Stop()
	for {
		err := tryRemoveTree(dir)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("removing control group %s: %w", dir, err)
		case <-ticker.C:
		}
	}
}

func tryRemoveTree(dir string) error {
	groups, err := groupsBelow(dir)
	if err != nil {
		return err
	}
	for _, g := range slices.Backward(groups) { // children first
		killGroup(g)
		_ = os.WriteFile(filepath.Join(g, "cpu.rt_runtime_us"), []byte("0"), 0o644) // frees its bandwidth at once, where it has any
		if err := os.Remove(g); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// groupsBelow lists the group and those below it, parents first; none when it is not there.
func groupsBelow(dir string) ([]string, error) {
	var all []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err == nil && entry.IsDir() {
			all = append(all, path)
		}
		return err
	})
	return all, err
}

// killGroup kills the processes in a group; one that is gone is of no interest.
func killGroup(dir string) {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return
	}
	for _, line := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(line); err == nil && pid > 1 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
