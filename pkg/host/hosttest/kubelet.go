package hosttest

import (
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// Kubelet is how the kubelet and its runtime name groups.
type Kubelet struct {
	// Systemd is the driver; otherwise it is cgroupfs.
	Systemd bool
	// Runtime is host.Containerd, host.CRIO or host.Docker.
	Runtime string
	// Root is --cgroup-root without slashes; empty for none.
	Root string
}

// QoS classes as the kubelet names their groups.
const (
	Guaranteed = ""
	Burstable  = "burstable"
	BestEffort = "besteffort"
)

// Container makes the groups of a container and returns the path of its own.
func (tr *Tree) Container(k Kubelet, qos, podUID, id string) string {
	tr.t.Helper()
	group := path.Join(k.Pod(qos, podUID), k.container(id))
	tr.Group(group)
	if k.Runtime == host.CRIO && k.Systemd {
		tr.Group(path.Join(path.Dir(group), "crio-conmon-"+id+".scope")) // the monitor, which is no container
	}
	return group
}

// Pod is the path of a pod's group.
func (k Kubelet) Pod(qos, podUID string) string {
	if !k.Systemd {
		return path.Join("/", k.Root, "kubepods", qos, "pod"+podUID)
	}
	names := []string{"kubepods", qos, "pod" + strings.ReplaceAll(podUID, "-", "_")}
	if k.Root != "" {
		names = append([]string{strings.ReplaceAll(k.Root, "-", "_")}, names...)
	}
	dir, slice := "/", ""
	for _, name := range names {
		if name == "" {
			continue
		}
		slice = strings.TrimPrefix(slice+"-"+name, "-")
		dir = path.Join(dir, slice+".slice")
	}
	return dir
}

func (k Kubelet) container(id string) string {
	prefix := map[string]string{host.Containerd: "cri-containerd-", host.CRIO: "crio-", host.Docker: "docker-"}[k.Runtime]
	switch {
	case k.Systemd:
		return prefix + id + ".scope"
	case k.Runtime == host.CRIO:
		return prefix + id
	}
	return id
}

func (tr *Tree) exists(file string) bool {
	_, err := os.Lstat(filepath.Join(tr.dir, file))
	return err == nil
}
