package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// DefaultCDIDir is where container runtimes look for CDI specifications.
const DefaultCDIDir = "/var/run/cdi"

// Servers is the node's table, as the agent has it now.
type Servers interface {
	// OfPod are the servers of a pod; their IDs are those of rtdra.ServerID.
	OfPod(pod types.UID) []table.Server
}

// Config of a Driver. All but Servers must be given.
type Config struct {
	// NodeName is the node's, and that of its pool of devices.
	NodeName string
	// Client may get Nodes and ResourceClaims, and do everything with the ResourceSlices of the node.
	Client kubernetes.Interface
	// KubeletDir is the kubelet's data directory, /var/lib/kubelet.
	KubeletDir string
	// CDIDir is where the runtime looks for CDI specifications.
	CDIDir string
	// Machine reads the cores as they are now.
	Machine func() (host.Topology, error)
	// EscalationReserve is kept of each core's capacity for raising Limited servers.
	EscalationReserve rt.PPM
	// Servers, when given, is the node's table. A claim that was prepared waits up to awaitTime until its
	// container is in it: the runtime, which comes next, has little time to wait, and a container that is
	// made before its server is known starts without a budget.
	Servers Servers
	Clock   clock.WithTicker
}

const (
	// awaitTime is how long claims wait for the first report, and then for their containers in the table,
	// looking each awaitStep.
	awaitTime, awaitStep = 2 * time.Second, 25 * time.Millisecond
	// sweepEvery is how often prepared claims are compared with the API server.
	sweepEvery = time.Minute
	// apiTimeout bounds one call to the API server.
	apiTimeout = 10 * time.Second
)

// Driver is the plugin. Its methods may be called from anywhere.
type Driver struct {
	health.UnimplementedDRAResourceHealthServer
	config Config
	log    logr.Logger
	helper *kubeletplugin.Helper
	stop   context.CancelCauseFunc
	ended  context.Context
	loops  sync.WaitGroup

	mu       sync.Mutex // guards what follows, and the files
	disk     checkpoint
	cdi      cdiFolder
	prepared map[types.UID]Record
	lost     map[types.UID]types.NamespacedName // claims whose record could not be read, until they are recorded again
	offer    *Offer                             // nil before the first report
	reported time.Time
	faults   map[int]string // cores on which the fast path broke what was promised
	changed  chan struct{}  // closed when the health of a core may have changed

	wanted chan []resourcev1.Device // to publish, the newest only
}

// Start registers with the kubelet and serves it until ctx ends or Stop is called. Nothing is published
// before the first Update; what an earlier run published stays until then.
func Start(ctx context.Context, config Config) (_ *Driver, err error) {
	d := &Driver{
		config: config, log: logr.FromContextOrDiscard(ctx).WithName("driver"),
		changed: make(chan struct{}), wanted: make(chan []resourcev1.Device, 1),
	}
	plugin := filepath.Join(config.KubeletDir, "plugins", v1alpha1.DriverCPU)
	registry := filepath.Join(config.KubeletDir, "plugins_registry")
	for _, dir := range []string{plugin, registry} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return nil, fmt.Errorf("making a folder of the kubelet's: %w", err)
		}
	}
	if err := d.recover(filepath.Join(plugin, "claims")); err != nil {
		return nil, err
	}
	ctx, d.stop = context.WithCancelCause(logr.NewContext(ctx, d.log))
	d.ended = ctx
	if d.helper, err = kubeletplugin.Start(ctx, d,
		kubeletplugin.DriverName(v1alpha1.DriverCPU), kubeletplugin.NodeName(config.NodeName),
		kubeletplugin.KubeClient(config.Client), kubeletplugin.Serialize(false),
		kubeletplugin.RegistrarDirectoryPath(registry), kubeletplugin.PluginDataDirectoryPath(plugin),
	); err != nil {
		d.stop(err)
		return nil, fmt.Errorf("starting the DRA plugin: %w", err)
	}
	d.loops.Go(func() { d.sweepUntil(ctx) })
	d.loops.Go(func() { d.publishUntil(ctx) })
	return d, nil
}

// recover makes disk and memory agree after a crash between any two steps: the records count.
func (d *Driver) recover(dir string) (err error) {
	if d.disk, err = openCheckpoint(dir); err != nil {
		return err
	}
	if d.cdi, err = openCDI(d.config.CDIDir); err != nil {
		return err
	}
	var lost []types.UID
	if d.prepared, lost, err = d.disk.load(); d.prepared == nil {
		return err
	} else if err != nil {
		d.log.Error(err, "A record of a prepared claim was put aside; it is made again from the API server's claim")
	}
	d.lost, err = d.cdi.restore(d.prepared, lost)
	return err
}

// Stop ends everything and waits for it. What is prepared and published stays.
func (d *Driver) Stop() {
	d.stop(context.Canceled)
	d.helper.Stop()
	d.loops.Wait()
}

// Wait returns when the plugin ends: with nil after Stop or the end of the context, else with the reason.
func (d *Driver) Wait() error {
	<-d.ended.Done()
	if err := context.Cause(d.ended); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Registered tells whether the kubelet has accepted the plugin, and else why not, if it said so.
func (d *Driver) Registered() (bool, string) {
	status := d.helper.RegistrationStatus()
	if status == nil {
		return false, ""
	}
	return status.PluginRegistered, status.Error
}

// HandleError implements kubeletplugin.DRAPlugin. Without its sockets the plugin is of no use: it ends.
func (d *Driver) HandleError(_ context.Context, err error, msg string) {
	if errors.Is(err, kubeletplugin.ErrRecoverable) {
		d.log.Error(err, "The DRA plugin goes on after a fault", "fault", msg)
		return
	}
	d.stop(fmt.Errorf("%s: %w", msg, err))
}

// Update takes a report of the fast path, compares it with the machine and has the devices published anew
// when they differ from what was published. The error says what keeps cores from being offered.
func (d *Driver) Update(report table.Report) error {
	machine, err := d.config.Machine()
	if err != nil {
		return fmt.Errorf("reading the machine's cores: %w", err)
	}
	offer, unfit := OfferOf(report, machine.Cores, d.config.EscalationReserve)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.takeOffer(offer, report)
	select {
	case <-d.wanted: // what nobody has published yet is old
	default:
	}
	d.wanted <- offer.Devices()
	return unfit
}

// takeOffer remembers the report, and wakes those who watch the health of cores when it differs.
func (d *Driver) takeOffer(offer Offer, report table.Report) {
	faults := map[int]string{}
	for _, c := range report.Cores {
		if c.Broken > 0 {
			faults[c.ID] = fmt.Sprintf("more than its capacity was promised %d times: a defect of the agent", c.Broken)
		}
	}
	same := d.offer != nil && apiequality.Semantic.DeepEqual(*d.offer, offer) && apiequality.Semantic.DeepEqual(d.faults, faults)
	d.offer, d.faults, d.reported = &offer, faults, d.config.Clock.Now()
	if !same {
		close(d.changed)
		d.changed = make(chan struct{})
	}
}

// publishUntil has the newest devices written, and again whenever somebody takes them away, as a kubelet does
// with those of its node when it starts. To begin waits for the API server, be that away for an hour: nothing
// else may wait for it.
func (d *Driver) publishUntil(ctx context.Context) {
	var writer *resourceslice.Controller
	defer func() { writer.Stop() }()
	for {
		select {
		case <-ctx.Done():
			return
		case devices := <-d.wanted:
			resources := d.resources(devices)
			if writer != nil {
				writer.Update(resources)
				continue
			}
			var err error
			if writer, err = d.startWriter(ctx, resources); err != nil {
				d.log.Error(err, "Publishing the cores failed; the next report tries again")
			}
		}
	}
}

// startWriter starts what kubeletplugin.Helper.PublishResources would, but for the delays: with the library's,
// cores that a kubelet wiped come back after 30 to 90 seconds.
func (d *Driver) startWriter(ctx context.Context, resources *resourceslice.DriverResources) (*resourceslice.Controller, error) {
	return resourceslice.StartController(ctx, resourceslice.Options{
		DriverName: v1alpha1.DriverCPU, KubeClient: d.config.Client, Resources: resources,
		Owner:     &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: d.config.NodeName},
		SyncDelay: ptr.To(time.Second), MutationCacheTTL: ptr.To(2 * time.Second),
		ErrorHandler: func(_ context.Context, err error, msg string) {
			d.log.Error(err, "Publishing the cores goes on after a fault", "fault", msg)
		},
	})
}

func (d *Driver) resources(devices []resourcev1.Device) *resourceslice.DriverResources {
	var pool resourceslice.Pool
	for chunk := range slices.Chunk(devices, resourcev1.ResourceSliceMaxDevices) {
		pool.Slices = append(pool.Slices, resourceslice.Slice{Devices: chunk})
	}
	return &resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{d.config.NodeName: pool}}
}

// Claims that are prepared for a pod.
func (d *Driver) Claims(pod types.UID) []Record {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []Record
	for _, r := range d.prepared {
		if slices.Contains(r.Pods, pod) {
			out = append(out, r)
		}
	}
	return out
}
