package localnode

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"

	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

const (
	pauseReference = "mainspring.local/pause:1"
	// criNamespace is where containerd keeps what the kubelet uses.
	criNamespace = "k8s.io"
)

func stateDir(dir string) string { return filepath.Join(dir, "containerd", "state") }

// runtimeConfig has containerd keep everything in the node's directory. restrict_oom_score_adj: a root
// without CAP_SYS_RESOURCE cannot lower scores.
var runtimeConfig = template.Must(template.New("containerd").Parse(`version = 3
root = "{{.Dir}}/containerd/root"
state = "{{.State}}"
[grpc]
  address = "{{.Socket}}"
[ttrpc]
  address = "{{.Socket}}.ttrpc"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{{.Pause}}"
[plugins.'io.containerd.cri.v1.runtime']
  netns_mounts_under_state_dir = true
  enable_experimental_restore_via_create = {{.Restore}}
  enable_unprivileged_ports = false
  enable_unprivileged_icmp = false
  restrict_oom_score_adj = true
  enable_cdi = true
  cdi_spec_dirs = ["{{.CDI}}"]
  tolerate_missing_hugetlb_controller = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["{{.Dir}}/cni/bin"]
  conf_dir = "{{.Dir}}/cni/conf"
  use_internal_loopback = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  runtime_path = "{{.Shim}}"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = "{{.Runc}}"
  Root = "{{.Dir}}/runc"
  SystemdCgroup = false
[plugins.'io.containerd.nri.v1.nri']
  disable = false
  socket_path = "{{.NRI}}"
  plugin_path = "{{.Dir}}/nri/plugins"
  plugin_config_path = "{{.Dir}}/nri/conf.d"
  plugin_registration_timeout = "5s"
  plugin_request_timeout = "2s"
`))

// noNetwork lets containerd say that pods have a network. Pods with one of their own would need the plugin;
// those of a local node use that of the machine.
const noNetwork = `{"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "loopback"}]}`

// ownNetworks gives each pod a pair of devices and a route to it. The node's addresses are those of its number.
const ownNetworks = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "ipMasq": false,
  "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "%s%s.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}`

// podRange begins the addresses of pods, and ends with the last number of their node's.
const podRange = "10.98."

// network is the configuration of the pods' network.
func (n *Node) network() string {
	if !n.options.Networks {
		return noNetwork
	}
	return fmt.Sprintf(ownNetworks, n.dir.file("cni", "data"), podRange, strings.TrimPrefix(n.record.Address, addressRange))
}

// linkPlugins puts the plugins of the network where containerd looks for them.
func (n *Node) linkPlugins() error {
	if !n.options.Networks {
		return nil
	}
	for _, tool := range NetworkTools() {
		if err := os.Symlink(n.options.Bin[tool], n.dir.file("cni", "bin", string(tool))); err != nil {
			return fmt.Errorf("linking plugins of the network: %w", err)
		}
	}
	return nil
}

func (n *Node) writeRuntimeConfig() error {
	for _, sub := range []string{"containerd/root", "containerd/state", "cni/bin", "cni/conf", "nri/plugins", "nri/conf.d", "cdi", "runc"} {
		if err := os.MkdirAll(n.dir.file(filepath.FromSlash(sub)), 0o700); err != nil {
			return fmt.Errorf("creating the runtime's directories: %w", err)
		}
	}
	var config strings.Builder
	err := runtimeConfig.Execute(&config, map[string]string{
		"Dir": n.dir.path, "State": stateDir(n.dir.path), "Socket": n.RuntimeSocket(), "Pause": pauseReference,
		"CDI": n.CDIDir(), "NRI": n.NRISocket(), "Shim": n.options.Bin[toolchain.ContainerdShim], "Runc": n.options.Bin[toolchain.Runc],
		"Restore": strconv.FormatBool(n.options.Checkpoints),
	})
	if err != nil {
		return fmt.Errorf("making the runtime's configuration: %w", err)
	}
	for path, content := range map[string]string{
		n.dir.file("containerd.toml"):                 config.String(),
		n.dir.file("cni", "conf", "10-pods.conflist"): n.network(),
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return fmt.Errorf("writing the runtime's configuration: %w", err)
		}
	}
	return n.linkPlugins()
}

// startRuntime starts containerd and waits until it answers.
func (n *Node) startRuntime(ctx context.Context) error {
	err := n.launch(&n.runtime, toolchain.Containerd, "--config", n.dir.file("containerd.toml"), "--log-level", "info")
	if err != nil {
		return err
	}
	return n.await(ctx, "containerd to answer", func(ctx context.Context) error {
		return n.ctr(ctx, "version")
	})
}

// Import makes the images of an OCI archive, or of one that docker save wrote, known to the node.
func (n *Node) Import(ctx context.Context, archive string) error {
	_, err := ImportImages(ctx, n.options.Bin[toolchain.Ctr], n.RuntimeSocket(), archive)
	return err
}

// ImportImages makes the images of an archive known to the runtime at the socket, by the program ctr of that path. It returns what ctr prints: the
// names of the images.
func ImportImages(ctx context.Context, ctr, socket, archive string) (string, error) {
	out, err := callRuntime(ctx, ctr, socket, "images", "import", "--local", archive)
	if err != nil {
		return "", fmt.Errorf("importing image %s: %w", filepath.Base(archive), err)
	}
	return out, nil
}

// ctr calls containerd's client.
func (n *Node) ctr(ctx context.Context, args ...string) error {
	_, err := callRuntime(ctx, n.options.Bin[toolchain.Ctr], n.RuntimeSocket(), args...)
	return err
}

func callRuntime(ctx context.Context, ctr, socket string, args ...string) (string, error) {
	args = append([]string{"--address", socket, "--namespace", criNamespace}, args...)
	cmd := exec.CommandContext(ctx, ctr, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("calling ctr: %w: %s", err, strings.TrimSpace(stdout.String()+stderr.String()))
	}
	return stdout.String(), nil
}
