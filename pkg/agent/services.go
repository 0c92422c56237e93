package agent

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/agent/discover"
	"github.com/mainspring-rt/mainspring/pkg/agent/driver"
	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/agent/nri"
	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// Environment is what the agent takes from outside.
type Environment struct {
	Options
	Config  *rest.Config
	Clock   clock.WithTicker
	Log     logr.Logger
	Version string
}

// Services lists what the agent is made of, in the order in which they start. Each is told of the others
// by functions that read an immutable value.
func Services(e Environment) ([]Service, error) {
	httpClient, err := rest.HTTPClientFor(e.Config)
	if err != nil {
		return nil, fmt.Errorf("making the HTTP client: %w", err)
	}
	api, err := newKube(e.Config, httpClient)
	if err != nil {
		return nil, err
	}
	machine, fast, changed := host.New(e.HostRoot), client.New(e.Socket), newSignal()
	watch := &watcher{kube: api, node: e.NodeName, changed: changed}
	poll := &poller{fast: fast, world: watch.World, clock: e.Clock, log: e.Log.WithName("poll"), stateDir: e.StateDir}
	poll.listeners = append(poll.listeners, restarts(changed))
	feed := &feeder{
		fast: fast, finder: discover.NewFinder(machine, changed.raise), world: watch.World, counted: poll.Counted,
		changed: changed, clock: e.Clock, log: e.Log.WithName("feed"),
	}
	press, err := newPressure(e, machine)
	if err != nil {
		return nil, err
	}
	offer := &offers{
		counted: poll.Counted, machine: machine.Topology, reserve: rt.PPM(e.EscalationReserve), clock: e.Clock, log: e.Log.WithName("offer"),
	}
	states := withCheckpoints(e, api, machine)
	list := []Service{
		&alone{dir: e.StateDir, clock: e.Clock, log: e.Log.WithName("lock")},
		watch, poll, feed, press, offer,
		&reporter{
			api: api, node: e.NodeName, version: e.Version, heartbeat: e.Heartbeat, world: watch.World, applied: feed.Applied,
			counted: poll.Counted, pressure: press.Now, cores: offer.Cores, checkpoint: states.Capability, clock: e.Clock, log: e.Log.WithName("report"),
		},
		&teller{api: api, node: e.NodeName, world: watch.World, counted: poll.Counted, clock: e.Clock, log: e.Log.WithName("events")},
		&noter{
			api: api, node: e.NodeName, world: watch.World, counted: poll.Counted, pressure: press.Now, clock: e.Clock, log: e.Log.WithName("node"),
		},
	}
	if states != nil {
		list = append(list, states)
	}
	list = append(list, &trimmer{clock: e.Clock, log: e.Log.WithName("trim")})
	if e.KubeletDir != "" {
		plugin, err := newPlugins(e, httpClient, machine, fast, pluginDeps{feed, offer})
		if err != nil {
			return nil, err
		}
		list = append(list, plugin)
	}
	if e.Port != 0 {
		front := &front{environment: e, client: httpClient, requests: api, fast: fast, world: watch.World, applied: feed.Applied, counted: poll.Counted, pressure: press.Now, checkpoints: states}
		list = append(list, front)
	}
	return list, nil
}

// newPlugins are the DRA and the NRI plugin. Both look servers up in the table that the feeder has given to the fast
// path, so that a container is never created with a budget that nobody governs.
func newPlugins(e Environment, httpClient *http.Client, machine host.Host, fast *client.Client, deps pluginDeps) (*plugins, error) {
	kube, err := kubernetes.NewForConfigAndClient(e.Config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("making the client of the DRA plugin: %w", err)
	}
	return &plugins{
		driver: driver.Config{
			NodeName: e.NodeName, Client: kube, KubeletDir: e.KubeletDir, CDIDir: e.CDIDir, Machine: machine.Topology,
			EscalationReserve: rt.PPM(e.EscalationReserve), Servers: deps.feed, Clock: e.Clock,
		},
		nri: nri.Config{
			Socket: e.NRISocket, Servers: deps.feed, CRIU: e.criuConfig(), Room: fast.Room, Created: deps.feed.finder.Created, Clock: e.Clock,
		},
		offers: deps.offer, clock: e.Clock, log: e.Log.WithName("plugins"),
	}, nil
}

// pluginDeps are the services that the plugins ask.
type pluginDeps struct {
	feed  *feeder
	offer *offers
}

// restarts raises the signal when the fast path is another instance, or answers again.
func restarts(changed *signal) func(*Counted) {
	instance := ""
	return func(c *Counted) {
		if c.Err == nil && c.Report.Instance != instance {
			instance = c.Report.Instance
			changed.raise()
		}
	}
}

// LoadConfig reads the kubeconfig, or the in-cluster configuration where path is empty.
func LoadConfig(path, version string) (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	if path != "" {
		config, err = clientcmd.BuildConfigFromFlags("", path)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the configuration of the client: %w", err)
	}
	config.UserAgent = strings.TrimSuffix(FieldManager+"/"+version, "/")
	config.QPS = -1 // every service has its own bound, and the API server its fairness
	return config, nil
}
