package agent

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint"
	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint/containerd"
	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint/kubelet"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/keptfile"
)

// checkpoints takes the state of containers to other nodes, and theirs to this one.
type checkpoints struct {
	environment Environment
	api         *kube
	machine     host.Host

	runtime *containerd.Client
	keeper  *checkpoint.Keeper
}

// Name implements Service.
func (c *checkpoints) Name() string { return "checkpoints" }

// Capability is what the node can do; nil where it is switched off, or was not looked at yet.
func (c *checkpoints) Capability() *v1alpha1.CheckpointCapability {
	if c == nil || c.keeper == nil {
		return nil
	}
	return c.keeper.Capability()
}

// criuOptions are how CRIU treats connections: those that are open are closed, as their other ends cannot follow, those that
// were not accepted yet are dropped, and so none has to be kept from going on meanwhile, which would take iptables.
const criuOptions = "tcp-close\nskip-in-flight\nnetwork-lock skip\n"

// criuConfig is the file with the options for CRIU, where runc and CRIU on the machine find it; empty where nothing is checkpointed.
func (e Environment) criuConfig() string {
	if !e.Checkpoint {
		return ""
	}
	return filepath.Join(e.StateDir, "criu.conf")
}

// Describe implements prometheus.Collector.
func (c *checkpoints) Describe(to chan<- *prometheus.Desc) {
	for _, d := range checkpoint.Descriptions() {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *checkpoints) Collect(to chan<- prometheus.Metric) {
	if c.keeper != nil {
		c.keeper.Collect(to)
	}
}

// tellCRIU writes the file, where it is not there already: containers that run name it, and a full disk must not keep the agent from
// starting.
func tellCRIU(file string) error {
	if was, err := keptfile.Read(file, len(criuOptions)); err == nil && string(was) == criuOptions {
		return nil
	}
	next := file + ".next"
	err := os.WriteFile(next, []byte(criuOptions), 0o600)
	if err == nil {
		err = os.Rename(next, file)
	}
	if err != nil {
		return fmt.Errorf("telling CRIU how to treat connections: %w", err)
	}
	return nil
}

// Init listens, so that an agent whose port is taken says so at once.
func (c *checkpoints) Init(ctx context.Context) error {
	e := c.environment
	if err := tellCRIU(e.criuConfig()); err != nil {
		return err
	}
	driver, err := c.driver()
	if err != nil {
		return err
	}
	advertised := net.JoinHostPort(e.CheckpointHost, strconv.Itoa(e.CheckpointPort))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", advertised)
	if err != nil {
		return fmt.Errorf("listening for other agents: %w", err)
	}
	api := checkpoint.Kube{Core: c.api.core, MCKube: c.api.rt, Node: e.NodeName, Manager: FieldManager}
	driver.PodAPI = api.PodAPI
	c.keeper, err = checkpoint.New(checkpoint.Config{
		Node: e.NodeName, API: api, Watch: api.Watch, Driver: driver,
		Dir: filepath.Join(e.StateDir, "checkpoints"), Archives: filepath.Join(e.KubeletDir, "checkpoints"),
		Listener: listener, Address: advertised, Rate: e.CheckpointRate,
		Limits: checkpoint.Limits{Archive: e.CheckpointMaxBytes, Quota: e.CheckpointQuota, Free: e.CheckpointKeepFree, FreePercent: e.CheckpointKeepFreePercent},
		Clock:  e.Clock, Log: e.Log.WithName("checkpoints"),
	})
	return err
}

func (c *checkpoints) driver() (checkpoint.CRI, error) {
	e := c.environment
	kernel, err := c.machine.KernelRelease()
	if err != nil {
		return checkpoint.CRI{}, err
	}
	if c.runtime, err = containerd.New(e.ContainerdSocket, e.ContainerdSnapshotter, e.Clock); err != nil {
		return checkpoint.CRI{}, err
	}
	asked, err := kubelet.New(e.Config, e.KubeletEndpoint, e.KubeletCA)
	if err != nil {
		return checkpoint.CRI{}, err
	}
	return checkpoint.CRI{Client: c.runtime, Kubelet: asked, Criu: e.CRIU, Kernel: kernel, Held: c.held}, nil
}

// held is how much memory the kernel charges to a container.
func (c *checkpoints) held(pod types.UID, id string) (int64, error) {
	groups, err := c.machine.Cgroups()
	if err != nil {
		return 0, err
	}
	group, err := groups.ContainerGroup(string(pod), id)
	if err != nil {
		return 0, err
	}
	return groups.Memory(group)
}

// Run works until ctx ends.
func (c *checkpoints) Run(ctx context.Context) error { return c.keeper.Run(ctx) }

// Shutdown closes the connection to the runtime.
func (c *checkpoints) Shutdown(context.Context) error {
	if c.runtime == nil {
		return nil
	}
	return c.runtime.Close()
}

// withCheckpoints adds the service where it is switched on.
func withCheckpoints(e Environment, api *kube, machine host.Host) *checkpoints {
	if !e.Checkpoint {
		return nil
	}
	return &checkpoints{environment: e, api: api, machine: machine}
}
