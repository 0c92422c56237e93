package driver

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/grpc"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

const (
	// healthEvery is how often the kubelet is told the health of cores that did not change.
	healthEvery = 10 * time.Second
	// healthTimeout is after what silence the kubelet takes the health of a core for unknown.
	healthTimeout = 30 * time.Second
	// reportTimeout is after what silence of the fast path we do; the agent passes a report on every 10 s.
	reportTimeout = 30 * time.Second
)

// NodeWatchResources implements the kubelet's DRAResourceHealth service: the pods that use a core show its
// health in their status (KEP-4680).
func (d *Driver) NodeWatchResources(_ *health.NodeWatchResourcesRequest, stream grpc.ServerStreamingServer[health.NodeWatchResourcesResponse]) error {
	ticker := d.config.Clock.NewTicker(healthEvery)
	defer ticker.Stop()
	for {
		devices, changed := d.health()
		if err := stream.Send(&health.NodeWatchResourcesResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ticker.C():
		case <-stream.Context().Done():
			return nil
		case <-d.ended.Done():
			return nil
		}
	}
}

// health of each core that is or would be offered, and a channel that closes when it may have changed.
func (d *Driver) health() ([]*health.DeviceHealth, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.offer == nil {
		return nil, d.changed
	}
	now := d.config.Clock.Now()
	silent := now.Sub(d.reported) > reportTimeout
	var out []*health.DeviceHealth
	add := func(core int, status health.HealthStatus, message string) {
		if silent && status == health.HealthStatus_HEALTHY {
			status, message = health.HealthStatus_UNKNOWN, "the fast path is silent; what it applied last stays in force"
		}
		out = append(out, &health.DeviceHealth{
			Device: &health.DeviceIdentifier{PoolName: d.config.NodeName, DeviceName: rtdra.DeviceName(core)},
			Health: status, Message: message, LastUpdatedTime: now.Unix(), HealthCheckTimeoutSeconds: int64(healthTimeout.Seconds()),
		})
	}
	for _, c := range d.offer.Cores {
		if fault := d.faults[c.ID]; fault != "" {
			add(c.ID, health.HealthStatus_UNHEALTHY, fault)
			continue
		}
		add(c.ID, health.HealthStatus_HEALTHY, "")
	}
	for core, why := range d.offer.Unfit {
		add(core, health.HealthStatus_UNHEALTHY, why)
	}
	slices.SortFunc(out, func(a, b *health.DeviceHealth) int { return cmp.Compare(a.Device.DeviceName, b.Device.DeviceName) })
	return out, d.changed
}
