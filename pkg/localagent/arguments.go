package localagent

import (
	"context"
	"net"
	"path/filepath"

	"github.com/mainspring-rt/mainspring/pkg/chart"
	"github.com/mainspring-rt/mainspring/pkg/localnode"
	"github.com/mainspring-rt/mainspring/pkg/localplane"
)

// The containers of the chart's DaemonSet, and so their programs.
const (
	FastPath = "fastpath"
	Agent    = "agent"
)

// frontDoorPort is the chart's default port of the agent.
const frontDoorPort = "8080"

// Options say where an agent runs.
type Options struct {
	Plane *localplane.Plane
	Node  *localnode.Node
	// Chart is what chart mainspring renders with agent.enabled and agent.checkpoint.enabled. Its rights are in the cluster.
	Chart chart.Manifests
	// Dir receives sockets, states and certificates. It goes after the agent.
	Dir string
	// CRIU is the path of the program that writes the state of containers.
	CRIU string
	// Cores are those that the agent governs, as "1-3,6"; empty: all but the lowest. A core has one agent.
	Cores string
}

// Arguments are how both programs of an agent are run.
type Arguments struct {
	FastPath, Agent []string
	// Socket is where the fast path answers.
	Socket string
	// URL of the agent's port; CA is the path of the authority that signs its certificate, which is for the node's name.
	URL, CA string
}

// NewArguments returns the arguments, and writes the agent's kubeconfig, whose token is bound to the Node as those that kubelets hand out are.
func NewArguments(ctx context.Context, o Options) (Arguments, error) {
	set, err := chart.AgentDaemonSet(o.Chart)
	if err != nil {
		return Arguments{}, err
	}
	fastPath, err := chart.NodeInvocation(set, FastPath)
	if err != nil {
		return Arguments{}, err
	}
	agent, err := chart.NodeInvocation(set, Agent)
	if err != nil {
		return Arguments{}, err
	}
	name, address := o.Node.Name(), o.Node.Address()
	kubeconfig, err := o.Plane.KubeconfigOnNode(ctx, agent.Namespace, agent.ServiceAccount, name)
	if err != nil {
		return Arguments{}, err
	}
	socket, state := filepath.Join(o.Dir, "fastpath.sock"), filepath.Join(o.Dir, "agent")
	return Arguments{
		Socket: socket, URL: "https://" + net.JoinHostPort(address, frontDoorPort), CA: filepath.Join(state, "tls", "ca.crt"),
		FastPath: chart.Override(fastPath.Args, "--socket="+socket, "--state-dir="+filepath.Join(o.Dir, "state"), "--cores="+o.Cores),
		Agent: chart.Override(agent.Args,
			"--node-name="+name,
			"--kubeconfig="+kubeconfig,
			"--fastpath-socket="+socket,
			"--state-dir="+state,
			"--kubelet-dir="+o.Node.KubeletDir(),
			"--cdi-dir="+o.Node.CDIDir(),
			"--nri-socket="+o.Node.NRISocket(),
			"--host="+address,
			"--dns-names="+name,
			"--checkpoint-host="+address,
			"--checkpoint-keep-free-percent=2", // the kubelet of a local node evicts at 1 %
			"--kubelet-endpoint="+o.Node.KubeletEndpoint(),
			"--containerd-socket="+o.Node.RuntimeSocket(),
			"--criu="+o.CRIU,
		),
	}, nil
}
