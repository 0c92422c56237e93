// Package localnode runs a real node on this machine, joined to a local control plane: kubelet, containerd
// and runc, whose containers are real. It needs root and cgroup v1 or v2 hierarchies that it may write.
//
// Of the machine it uses a directory in the temporary directory, one control group of that name in every
// hierarchy, an address on the loopback device, and the sysctls that every kubelet sets. All of it is taken
// back by Stop, and what a killed process left is taken back by the next Start. Several nodes may live at once. Pods
// share the machine's network (hostNetwork), unless the option Networks gives them their own, and use images that were
// imported (imagePullPolicy Never).
package localnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/localnode/image"
	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/process"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

const (
	startTimeout = 3 * time.Minute
	probeEvery   = 50 * time.Millisecond
	probeTimeout = 5 * time.Second
	stopGrace    = 10 * time.Second
	undoTimeout  = time.Minute
)

// Options describe a node.
type Options struct {
	// Name of the Node.
	Name string
	// Labels of the Node, those that a kubelet may set.
	Labels map[string]string
	// Bin holds the paths of Tools, from toolchain.Ensure.
	Bin toolchain.Paths
	// Images are paths of OCI archives that pods use.
	Images []string
	// Networks gives pods networks of their own, which reach this machine and each other's nodes by it. It takes
	// NetworkTools.
	Networks bool
	// Checkpoints lets containers be checkpointed and restored. It takes CheckpointTools.
	Checkpoints bool
	// Logs is the directory for the programs' logs; empty means the node's own, which goes with it.
	Logs string
	// Progress receives lines for people. Nil means none.
	Progress io.Writer
}

// Tools lists the programs that a node runs.
func Tools() []toolchain.Tool {
	return []toolchain.Tool{toolchain.Kubelet, toolchain.Containerd, toolchain.Ctr, toolchain.ContainerdShim, toolchain.Runc}
}

// NetworkTools lists what pods get networks by.
func NetworkTools() []toolchain.Tool { return []toolchain.Tool{toolchain.PTP, toolchain.HostLocal} }

// CheckpointTools lists what the state of containers is written by.
func CheckpointTools() []toolchain.Tool { return []toolchain.Tool{toolchain.CRIU} }

// needs are the programs that the options ask for.
func (o Options) needs() []toolchain.Tool {
	all := Tools()
	if o.Networks {
		all = append(all, NetworkTools()...)
	}
	if o.Checkpoints {
		all = append(all, CheckpointTools()...)
	}
	return all
}

// Node is a running node.
type Node struct {
	options    Options
	machine    machine
	dir        directory
	record     record
	client     kubernetes.Interface
	clock      clock.WithTicker
	kubeconfig string

	runtime, kubelet *process.Process // each nil before its first start
	stopOnce         sync.Once
	stopErr          error
}

// ErrNotRoot means that a node was to be started by somebody who is not root.
var ErrNotRoot = errors.New("a real node needs root")

// Start starts a node and returns when it is ready. The plane needs its controller manager and scheduler
// for pods to come to the node.
func Start(ctx context.Context, plane *localplane.Plane, o Options) (*Node, error) {
	if err := check(o); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	n, err := prepare(ctx, plane, o)
	if err != nil {
		return nil, fmt.Errorf("preparing a local node: %w", err)
	}
	if err := n.bringUp(ctx, plane); err != nil {
		return nil, errors.Join(fmt.Errorf("starting a local node: %w", err), n.Stop())
	}
	return n, nil
}

func check(o Options) error {
	if os.Geteuid() != 0 {
		return ErrNotRoot
	}
	if o.Name == "" {
		return errors.New("option Name is empty: want the name of the Node")
	}
	for _, tool := range o.needs() {
		if o.Bin[tool] == "" {
			return fmt.Errorf("option Bin has no path for %s: pass the paths of toolchain.Ensure(ctx, progress, localnode.Tools()...), and of NetworkTools and CheckpointTools for those options", tool)
		}
	}
	return nil
}

// prepare cleans up after killed nodes and notes how the machine is.
func prepare(ctx context.Context, plane *localplane.Plane, o Options) (*Node, error) {
	n := &Node{options: o, machine: machine{host.New("/")}, clock: clock.RealClock{}}
	var err error
	if n.client, err = kubernetes.NewForConfig(plane.RESTConfig()); err != nil {
		return nil, fmt.Errorf("making the client: %w", err)
	}
	if err := n.machine.removeAbandoned(ctx); err != nil {
		return nil, err
	}
	if n.dir, err = newDirectory(); err != nil {
		return nil, err
	}
	if n.record, err = n.machine.survey(n.dir.path); err == nil {
		err = n.record.save(n.dir.path)
	}
	if err != nil {
		return nil, errors.Join(err, n.dir.lock.Close(), os.RemoveAll(n.dir.path))
	}
	return n, nil
}

func (n *Node) bringUp(ctx context.Context, plane *localplane.Plane) error {
	if err := addAddress(ctx, n.record.Address); err != nil {
		return err
	}
	if err := n.machine.makeGroup(n.record.Group); err != nil {
		return err
	}
	if err := n.writeRuntimeConfig(); err != nil {
		return err
	}
	if err := n.writeKubeletConfig(plane); err != nil {
		return err
	}
	if err := n.startRuntime(ctx); err != nil {
		return err
	}
	pause, err := n.buildPause(ctx)
	if err != nil {
		return err
	}
	for _, archive := range append([]string{pause}, n.options.Images...) {
		if err := n.Import(ctx, archive); err != nil {
			return err
		}
	}
	return n.StartKubelet(ctx)
}

// buildPause makes the image that holds every pod's namespaces.
func (n *Node) buildPause(ctx context.Context) (string, error) {
	program, archive := n.dir.file("pause"), n.dir.file("pause.tar")
	if err := image.BuildProgram(ctx, toolchain.MainModule+"/pkg/localnode/pause", program); err != nil {
		return "", err
	}
	return archive, image.Image{Reference: pauseReference, Programs: []string{program}}.Save(archive)
}

// launch starts a program of the node, which must not run.
func (n *Node) launch(p **process.Process, tool toolchain.Tool, args ...string) error {
	if *p != nil && (*p).Running() {
		return fmt.Errorf("starting %s: it runs already", tool)
	}
	started, err := process.Start(process.Command{
		Name: string(tool), Path: n.options.Bin[tool], Args: args, Log: n.Log(tool), Env: n.environ(),
	})
	if err != nil {
		return err
	}
	*p = started
	return nil
}

// environ has containerd and runc find criu; nil is the environment of this process.
func (n *Node) environ() []string {
	if !n.options.Checkpoints {
		return nil
	}
	path := filepath.Dir(n.options.Bin[toolchain.CRIU]) + string(filepath.ListSeparator) + os.Getenv("PATH")
	return append(os.Environ(), "PATH="+path)
}

func (n *Node) stop(p *process.Process) error {
	if p == nil {
		return nil
	}
	return p.Stop(stopGrace)
}

// await repeats try until it succeeds. It fails when the context ends or a program does, with the end of
// the program's log.
func (n *Node) await(ctx context.Context, what string, try func(context.Context) error) error {
	ticker := n.clock.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		attempt, cancel := context.WithTimeout(ctx, probeTimeout)
		err := try(attempt)
		cancel()
		if err == nil {
			n.printf("%s: done", what)
			return nil
		}
		if died := n.Died(); died != nil {
			return fmt.Errorf("waiting for %s: %w", what, died)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w: %w; the end of the logs:\n%s", what, ctx.Err(), err, n.Tails())
		case <-ticker.C():
		}
	}
}

// Died tells which of the programs has ended by itself, with the end of its log; nil when none has.
func (n *Node) Died() error {
	for _, p := range []*process.Process{n.runtime, n.kubelet} {
		if p != nil && !p.Running() {
			return p.Died()
		}
	}
	return nil
}

// Tails are the ends of the programs' logs.
func (n *Node) Tails() string {
	var text string
	for _, p := range []*process.Process{n.runtime, n.kubelet} {
		if p != nil {
			text += p.Name() + ":\n" + p.Tail() + "\n"
		}
	}
	return text
}

// Stop ends kubelet, containers and containerd, in this order, and takes back what was changed of the
// machine. Calling it again returns the first call's error.
func (n *Node) Stop() error {
	n.stopOnce.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), undoTimeout)
		defer cancel()
		stopped := n.StopKubelet()
		emptied := n.machine.removeGroup(ctx, n.record.Group) // kills what runs in containers
		stopped = errors.Join(stopped, n.stop(n.runtime))
		undone := n.machine.undo(ctx, n.dir.path)
		n.stopErr = cmp.Or(errors.Join(emptied, undone), stopped)
		n.stopErr = errors.Join(n.stopErr, n.dir.lock.Close())
	})
	return n.stopErr
}

func (n *Node) printf(format string, args ...any) {
	if n.options.Progress != nil {
		fmt.Fprintf(n.options.Progress, "local node: "+format+"\n", args...)
	}
}
