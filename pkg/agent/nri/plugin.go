package nri

import (
	"context"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/agent/driver"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// Limits of an answer, which together stay below a second.
const (
	// serverWait is how long a claimed container waits for its server, looking each serverStep.
	serverWait, serverStep = 400 * time.Millisecond, 10 * time.Millisecond
	// roomTimeout bounds the fast path's answer.
	roomTimeout = 400 * time.Millisecond
)

// Claims are those that are prepared on the node; a driver.Driver has them.
type Claims interface {
	Claims(pod types.UID) []driver.Record
}

// Config of the plugin.
type Config struct {
	// Socket of the runtime, /var/run/nri/nri.sock.
	Socket string
	Claims Claims
	// Servers is the node's table.
	Servers driver.Servers
	// CRIU is the file that tells CRIU how to checkpoint and restore containers of this node; empty: what the machine has for
	// all of runc counts.
	CRIU string
	// Room has the fast path make room, at the levels above, for a container whose group, Server.Cgroup, is about to be
	// made; the answer is what the runtime should write. It ends with its context.
	Room func(ctx context.Context, s table.Server) (table.First, error)
	// Created is told of a container that has its group, and not started yet, or that runs when the plugin connects.
	// It must not block.
	Created func(pod types.UID, container, containerID, cgroup string)
	Clock   clock.WithTicker
}

// plugin answers the runtime.
type plugin struct {
	Config
	log logr.Logger
}

// CreateContainer implements stub.CreateContainerInterface.
func (p *plugin) CreateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	s := p.identify(pod, c)
	if !s.ours() {
		return p.withCRIU(nil, c), nil, nil
	}
	if s.server == nil && s.record != nil {
		s = p.await(ctx, pod, c)
	}
	cores, err := coresOf(s)
	if err != nil {
		return nil, nil, err
	}
	return p.withCRIU(adjustment(cores, p.first(ctx, s, c)), c), nil, nil
}

func (p *plugin) identify(pod *api.PodSandbox, c *api.Container) subject {
	uid := types.UID(pod.GetUid())
	return identify(pod, c, p.Claims.Claims(uid), p.Servers.OfPod(uid))
}

// await looks for the container's server until it is there, or the time is over.
func (p *plugin) await(ctx context.Context, pod *api.PodSandbox, c *api.Container) subject {
	ticker, end := p.Clock.NewTicker(serverStep), p.Clock.NewTimer(serverWait)
	defer ticker.Stop()
	defer end.Stop()
	for {
		if s := p.identify(pod, c); s.server != nil || s.record == nil {
			return s
		}
		select {
		case <-ticker.C():
		case <-end.C():
			return p.identify(pod, c)
		case <-ctx.Done():
			return p.identify(pod, c)
		}
	}
}

// first is the container's first budget; nothing where none can be given now. Then it starts without one,
// and the fast path, which wants the same as the table, goes on trying.
func (p *plugin) first(ctx context.Context, s subject, c *api.Container) table.First {
	log := p.log.WithValues("pod", s.pod, "container", s.name)
	if s.server == nil {
		log.Info("A real-time container starts without a budget: it is not in the node's table yet")
		return table.First{}
	}
	server := *s.server
	group, err := GroupPath(c.GetLinux().GetCgroupsPath())
	if err != nil {
		log.Error(err, "A real-time container starts without a budget")
		return table.First{}
	}
	server.Cgroup, server.ContainerID = group, c.GetId()
	ctx, cancel := context.WithTimeout(ctx, roomTimeout)
	defer cancel()
	first, err := p.Room(ctx, server)
	if err != nil {
		log.Error(err, "A real-time container starts without a budget: the fast path made no room for it")
		return table.First{}
	}
	return first
}

// PostCreateContainer implements stub.PostCreateContainerInterface: the group is there, the container waits.
func (p *plugin) PostCreateContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) error {
	p.tell(pod, c)
	return nil
}

func (p *plugin) tell(pod *api.PodSandbox, c *api.Container) {
	s := p.identify(pod, c)
	if !s.ours() || p.Created == nil {
		return
	}
	group, err := GroupPath(c.GetLinux().GetCgroupsPath())
	if err != nil {
		p.log.Error(err, "A real-time container has a group that is not understood", "pod", s.pod, "container", s.name)
		return
	}
	p.Created(s.pod, s.name, c.GetId(), group)
}

// UpdateContainer implements stub.UpdateContainerInterface: a kubelet that moves containers between cores
// (cpuManagerPolicy static) does not take one of ours off its core.
func (p *plugin) UpdateContainer(_ context.Context, pod *api.PodSandbox, c *api.Container, asked *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	if u := kept(c.GetId(), p.identify(pod, c), asked); u != nil {
		return []*api.ContainerUpdate{u}, nil
	}
	return nil, nil
}

// Synchronize implements stub.SynchronizeInterface: when the plugin connects, the containers that run already
// are told to the agent. It asks for no updates: what runs, the fast path alone changes.
func (p *plugin) Synchronize(_ context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	byID := map[string]*api.PodSandbox{}
	for _, pod := range pods {
		byID[pod.GetId()] = pod
	}
	for _, c := range containers {
		pod, ok := byID[c.GetPodSandboxId()]
		if ok && c.GetState() != api.ContainerState_CONTAINER_STOPPED {
			p.tell(pod, c)
		}
	}
	return nil, nil
}
