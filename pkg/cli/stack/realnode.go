package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/chart"
	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/localagent"
	"github.com/mainspring-rt/mainspring/pkg/localnode"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

var (
	agentProgram    = program{title: "the node agent", name: localagent.Agent}
	fastPathProgram = program{title: "the fast path", name: localagent.FastPath}
)

// budgetGranularity is a little more than a tick at CONFIG_HZ=250: kernels without HRTICK notice the end of a budget at the tick
// (docs/admission.md).
const budgetGranularity = "5ms"

// realNode is a node of this machine with its agent.
type realNode struct {
	node  *localnode.Node
	agent *localagent.Processes // nil until it has started
}

// RealNode is what commands need to know of a real node.
type RealNode struct {
	Name string `json:"name"`
	// RuntimeSocket is its containerd's.
	RuntimeSocket string `json:"runtimeSocket"`
	// Logs is the directory with the logs of its programs.
	Logs string `json:"logs"`
}

// nodeTools are the programs that real nodes take.
func (o Options) nodeTools() []toolchain.Tool {
	if o.RealNodes == 0 {
		return nil
	}
	tools := append(localnode.Tools(), localnode.NetworkTools()...)
	return append(append(tools, localnode.CheckpointTools()...), toolchain.Helm)
}

// divideCores returns the list of CPUs that the agent of each real node governs; a CPU has one agent.
func (o Options) divideCores() ([]string, error) {
	if o.RealNodes == 0 {
		return nil, nil
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("starting %d real nodes: %w", o.RealNodes, localnode.ErrNotRoot)
	}
	topology, err := host.New("/").Topology()
	if err != nil {
		return nil, fmt.Errorf("dividing the machine's cores among real nodes: %w", err)
	}
	return divide(topology.Online(), o.RealNodes)
}

// divide deals out the cores, in ascending order, to n nodes. The lowest is the host's, unless the nodes take all.
func divide(online []int, n int) ([]string, error) {
	if n < 0 || n > len(online) {
		return nil, fmt.Errorf("%d real nodes: want 0 to %d, as each has a core of this machine to itself", n, len(online))
	}
	if n < len(online) {
		online = online[1:]
	}
	lists := make([]string, n)
	for i := range lists {
		lists[i] = host.FormatCPUList(online[i*len(online)/n : (i+1)*len(online)/n])
	}
	return lists, nil
}

// agentBinaries returns the programs of the node agent: those beside the given controller, or built from the checkout.
func (o Options) agentBinaries(ctx context.Context) (b localagent.Binaries, err error) {
	if o.RealNodes == 0 {
		return b, nil
	}
	for p, into := range map[program]*string{agentProgram: &b.Agent, fastPathProgram: &b.FastPath} {
		if *into, err = o.binary(ctx, p, o.besideController(p)); err != nil {
			return b, err
		}
	}
	return b, nil
}

// besideController returns the path of the program in the directory of the given controller; empty where there is none.
func (o Options) besideController(p program) string {
	if o.Controller == "" {
		return ""
	}
	path := filepath.Join(filepath.Dir(o.Controller), p.name)
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// startNodes starts the real nodes and their agents, one after the other.
func (s *Stack) startNodes(ctx context.Context, o Options, manifests chart.Manifests, agents localagent.Binaries, cores []string) error {
	bin, err := toolchain.Ensure(ctx, o.Progress, o.nodeTools()...)
	if err != nil {
		return fmt.Errorf("providing the programs of real nodes: %w", err)
	}
	for i := range o.RealNodes {
		name := fmt.Sprintf("real-%d", i+1)
		logs := filepath.Join(s.plane.Dir(), "logs", name)
		if err := os.MkdirAll(logs, 0o700); err != nil {
			return fmt.Errorf("making the directory of logs: %w", err)
		}
		fmt.Fprintf(o.Progress, "starting real node %s: its agent governs cores %s\n", name, cores[i])
		node, err := localnode.Start(ctx, s.plane, localnode.Options{
			Name: name, Bin: bin, Networks: true, Checkpoints: true, Logs: logs, Progress: o.Progress,
		})
		if err != nil {
			return err
		}
		real := &realNode{node: node}
		s.nodes = append(s.nodes, real)
		args, err := localagent.NewArguments(ctx, localagent.Options{
			Plane: s.plane, Node: node, Chart: manifests, Dir: filepath.Join(s.plane.Dir(), name), CRIU: bin[toolchain.CRIU], Cores: cores[i],
		})
		if err != nil {
			return err
		}
		if real.agent, err = localagent.Start(ctx, o.Clock, args, agents, logs); err != nil {
			return fmt.Errorf("starting the agent of %s: %w\nmainspring doctor says what this machine lacks", name, err)
		}
		if err := s.awaitReport(ctx, o.Clock, real); err != nil {
			return err
		}
		fmt.Fprintf(o.Progress, "real node %s: its agent has reported what it can do\n", name)
	}
	return nil
}

// awaitReport waits until the node's agent has said what it can do about the state of containers, which is the last that it finds out when it starts.
func (s *Stack) awaitReport(ctx context.Context, clk clock.WithTicker, n *realNode) error {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("making client: %w", err)
	}
	c, err := client.New(s.plane.RESTConfig(), client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("making client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	ticker := clk.NewTicker(readyEvery)
	defer ticker.Stop()
	for {
		report := &v1alpha1.RTNode{}
		err := client.IgnoreNotFound(c.Get(ctx, client.ObjectKey{Name: n.node.Name()}, report))
		switch {
		case err != nil && ctx.Err() == nil:
			return fmt.Errorf("reading RTNode %s: %w", n.node.Name(), err)
		case err == nil && report.Status.Checkpoint != nil:
			return nil
		}
		if err := n.died(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the agent of %s to report: %w; the end of its log:\n%s", n.node.Name(), context.Cause(ctx), n.agent.Tail())
		case <-ticker.C():
		}
	}
}

// RealNodes describes them.
func (s *Stack) RealNodes() []RealNode {
	var all []RealNode
	for _, n := range s.nodes {
		name := n.node.Name()
		all = append(all, RealNode{Name: name, RuntimeSocket: n.node.RuntimeSocket(), Logs: filepath.Join(s.plane.Dir(), "logs", name)})
	}
	return all
}

// died returns how a program of the node ended by itself; nil while all run.
func (n *realNode) died() error { return errors.Join(n.node.Died(), n.agent.Died()) }

// stop ends the agent, so that budgets go in order, then the node.
func (n *realNode) stop() error {
	var err error
	if n.agent != nil {
		err = n.agent.Stop()
	}
	return errors.Join(err, n.node.Stop())
}
