package localnode

import (
	"cmp"
	"net"
	"path/filepath"

	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// Name of the Node.
func (n *Node) Name() string { return n.options.Name }

// Address of the node, on the loopback device.
func (n *Node) Address() string { return n.record.Address }

// Group is the control group of everything that runs in containers, in every hierarchy.
func (n *Node) Group() string { return n.record.Group }

// Dir is the node's directory. It goes with the node.
func (n *Node) Dir() string { return n.dir.path }

// KubeletDir is the kubelet's root directory; plugins register below it.
func (n *Node) KubeletDir() string { return n.dir.file("kubelet") }

// CDIDir is where containerd looks for CDI specifications.
func (n *Node) CDIDir() string { return n.dir.file("cdi") }

// NRISocket is where containerd takes NRI plugins.
func (n *Node) NRISocket() string { return n.dir.file("nri", "nri.sock") }

// RuntimeSocket is containerd's address.
func (n *Node) RuntimeSocket() string { return n.dir.file("containerd", "containerd.sock") }

// KubeletEndpoint is the address of the kubelet's API.
func (n *Node) KubeletEndpoint() string { return net.JoinHostPort(n.record.Address, "10250") }

// PodLogsDir is where the logs of containers are: a directory for each pod, and in it one for each container.
func (n *Node) PodLogsDir() string { return n.dir.file("podlogs") }

// Log is the path of a program's log.
func (n *Node) Log(tool toolchain.Tool) string {
	return filepath.Join(cmp.Or(n.options.Logs, n.dir.path), string(tool)+".log")
}

// KubeletPID and RuntimePID are the process IDs of kubelet and containerd.
func (n *Node) KubeletPID() int { return n.kubelet.PID() }

// RuntimePID is the process ID of containerd.
func (n *Node) RuntimePID() int { return n.runtime.PID() }
