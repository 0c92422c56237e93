package host

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// ErrNotFound is what ContainerGroup returns, wrapped, for a container without a group: it has not
// started, or is gone.
var ErrNotFound = errors.New("no control group of that container")

// The bounds of the search for the kubelet's groups below a --cgroup-root of its own.
const (
	maxDepth   = 6
	maxVisited = 8192
)

// ContainerGroup finds the group of a container that the kubelet runs: its path below the root of each
// hierarchy. The container is named by its pod's UID and its ID, with or without "containerd://".
// It knows the cgroupfs and systemd drivers, every QoS class, names of containerd, CRI-O and Docker, and a
// --cgroup-root of the kubelet. The search is by name; nothing is matched by a part of an ID.
func (h Host) ContainerGroup(podUID, containerID string) (string, error) {
	c, err := h.Cgroups()
	if err != nil {
		return "", err
	}
	return c.ContainerGroup(podUID, containerID)
}

// ContainerGroup is Host.ContainerGroup for those who ask often and keep the hierarchies.
func (c Cgroups) ContainerGroup(podUID, containerID string) (string, error) {
	if !validUID(podUID) {
		return "", fmt.Errorf("pod UID %q; want letters, digits and dashes", podUID)
	}
	id := containerID
	if strings.Contains(containerID, "://") {
		var err error
		if _, id, err = ParseContainerID(containerID); err != nil {
			return "", err
		}
	}
	if !validID(id) {
		return "", fmt.Errorf("container ID %q; want %d hexadecimal digits", containerID, idLength)
	}
	base, err := c.scheduling()
	if err != nil {
		return "", err
	}
	for kubepods := range kubepodsRoots(base) {
		if group, ok := containerIn(base, kubepods, podUID, id); ok {
			return group, nil
		}
	}
	return "", fmt.Errorf("%w: pod %s, container %s", ErrNotFound, podUID, id)
}

// scheduling is the root of the hierarchy that schedules CPU time.
func (c Cgroups) scheduling() (string, error) {
	if c.Has("cpu") {
		return c.base("cpu")
	}
	return c.base(Unified)
}

// KubepodsGroups are the groups below which the kubelet keeps its pods, as paths from the hierarchy's root:
// "/kubepods" or "/kubepods.slice" first, then those of a --cgroup-root.
func (h Host) KubepodsGroups() ([]string, error) {
	c, err := h.Cgroups()
	if err != nil {
		return nil, err
	}
	base, err := c.scheduling()
	if err != nil {
		return nil, err
	}
	return slices.Collect(kubepodsRoots(base)), nil
}

// kubepodsRoots searches breadth first, so that the usual places come first, and not below what it found.
func kubepodsRoots(base string) iter.Seq[string] {
	return func(yield func(string) bool) {
		level, visited := []string{"/"}, 0
		for depth := 0; depth < maxDepth && len(level) > 0; depth++ {
			var next []string
			for _, group := range level {
				for _, name := range subgroups(base, group) {
					visited++
					switch {
					case visited > maxVisited:
						return
					case !isKubepods(path.Base(name)):
						next = append(next, name)
					case !yield(name):
						return
					}
				}
			}
			level = next
		}
	}
}

// subgroups of a group, by name; none when it is gone.
func subgroups(base, group string) []string {
	entries, err := os.ReadDir(filepath.Join(base, group))
	if err != nil {
		return nil
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, path.Join(group, entry.Name()))
		}
	}
	return names
}

func isKubepods(name string) bool {
	return name == "kubepods" || name == "kubepods.slice" || strings.HasSuffix(name, "-kubepods.slice")
}

// containerIn looks for a container below one kubepods group, in every QoS class.
func containerIn(base, kubepods, podUID, id string) (string, bool) {
	for _, pod := range podGroups(kubepods, podUID) {
		for _, name := range containerNames(id) {
			group := path.Join(pod, name)
			if isGroup(base, group) {
				return innerGroup(base, group), true
			}
		}
	}
	return "", false
}

func isGroup(base, group string) bool {
	info, err := os.Lstat(filepath.Join(base, group))
	return err == nil && info.IsDir()
}

// inner is the group that crun makes for the processes within a scope of systemd's on the v2 hierarchy, where a
// group that has controlled children has no processes of its own (CRI-O; annotation run.oci.systemd.subgroup).
const inner = "container"

// innerGroup is where the processes of a container's group are: in itself, or in the one that crun made.
func innerGroup(base, group string) string {
	below := path.Join(group, inner)
	if !strings.HasSuffix(group, ".scope") || !isGroup(base, below) {
		return group
	}
	if own, err := os.ReadFile(filepath.Join(base, group, "cgroup.procs")); err != nil || len(bytes.TrimSpace(own)) > 0 {
		return group
	}
	return below
}

// podGroups are the names that a pod's group may have. A systemd slice repeats the names above it, and
// writes dashes of the UID as underscores, since a dash is a level there.
func podGroups(kubepods, podUID string) []string {
	slice, systemd := strings.CutSuffix(path.Base(kubepods), ".slice")
	groups := make([]string, 0, len(qosClasses))
	for _, qos := range qosClasses {
		if !systemd {
			groups = append(groups, path.Join(kubepods, qos, "pod"+podUID))
			continue
		}
		prefix, dir := slice, kubepods
		if qos != "" {
			prefix += "-" + qos
			dir = path.Join(kubepods, prefix+".slice")
		}
		groups = append(groups, path.Join(dir, prefix+"-pod"+strings.ReplaceAll(podUID, "-", "_")+".slice"))
	}
	return groups
}

// qosClasses by the directory that the kubelet keeps them in; Guaranteed pods have none.
var qosClasses = []string{"", "burstable", "besteffort"}

// containerNames are the names that a container's group may have: with the cgroupfs driver the ID alone, and
// with CRI-O a prefix; with the systemd driver a scope.
func containerNames(id string) []string {
	return []string{id, "crio-" + id, "cri-containerd-" + id + ".scope", "crio-" + id + ".scope", "docker-" + id + ".scope"}
}
