package driver_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

const patience = 30 * time.Second

// kubelet does what the kubelet's plugin watcher and DRA manager do, over the plugin's sockets.
type kubelet struct {
	t   testing.TB
	dir string
}

// newKubelet has its folder where socket paths stay short.
func newKubelet(t testing.TB) kubelet {
	t.Helper()
	dir, err := os.MkdirTemp("", "kubelet-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return kubelet{t, dir}
}

func (k kubelet) dial(socket string) *grpc.ClientConn {
	k.t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// register finds the plugin's socket in the registry, and tells it that it is accepted. It is also what a
// kubelet does that was restarted.
func (k kubelet) register() *plugin {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), patience)
	defer cancel()
	sockets, err := filepath.Glob(filepath.Join(k.dir, "plugins_registry", "*-reg.sock"))
	if err != nil || len(sockets) != 1 {
		k.t.Fatalf("sockets in the registry: %q, %v", sockets, err)
	}
	client := registration.NewRegistrationClient(k.dial(sockets[0]))
	info, err := client.GetInfo(ctx, &registration.InfoRequest{})
	if err != nil {
		k.t.Fatal(err)
	}
	if info.Type != registration.DRAPlugin || info.Name != v1alpha1.DriverCPU || !slices.Contains(info.SupportedVersions, "v1.DRAPlugin") || !slices.Contains(info.SupportedVersions, "v1alpha1.DRAResourceHealth") {
		k.t.Errorf("registered as %v", info)
	}
	if _, err := client.NotifyRegistrationStatus(ctx, &registration.RegistrationStatus{PluginRegistered: true}); err != nil {
		k.t.Fatal(err)
	}
	conn := k.dial(info.Endpoint)
	return &plugin{t: k.t, DRAPluginClient: dra.NewDRAPluginClient(conn), health: health.NewDRAResourceHealthClient(conn)}
}

// plugin is the driver as the kubelet sees it.
type plugin struct {
	t testing.TB
	dra.DRAPluginClient
	health health.DRAResourceHealthClient
}

func asked(claims []*resourcev1.ResourceClaim) []*dra.Claim {
	var out []*dra.Claim
	for _, c := range claims {
		out = append(out, &dra.Claim{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)})
	}
	return out
}

// prepare returns the CDI devices of the claim's containers, or why it was refused.
func (p *plugin) prepare(claim *resourcev1.ResourceClaim) (cdi []string, refusal string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	answer, err := p.NodePrepareResources(ctx, &dra.NodePrepareResourcesRequest{Claims: asked([]*resourcev1.ResourceClaim{claim})})
	if err != nil {
		return nil, err.Error()
	}
	got, ok := answer.Claims[string(claim.UID)]
	if !ok {
		p.t.Fatalf("no answer for %s: %v", claim.UID, answer)
	}
	for _, d := range got.Devices {
		if d.PoolName != nodeName || d.DeviceName != first(claim).Device || !slices.Equal(d.RequestNames, []string{"core"}) {
			p.t.Errorf("device %v", d)
		}
		if share := first(claim).ShareID; share != nil && d.GetShareId() != string(*share) {
			p.t.Errorf("share %q of device %s, want %s", d.GetShareId(), d.DeviceName, *share)
		}
		cdi = append(cdi, d.CdiDeviceIds...)
	}
	return cdi, got.Error
}

func (p *plugin) unprepare(claim *resourcev1.ResourceClaim) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	answer, err := p.NodeUnprepareResources(ctx, &dra.NodeUnprepareResourcesRequest{Claims: asked([]*resourcev1.ResourceClaim{claim})})
	if err != nil {
		p.t.Fatal(err)
	}
	if got, ok := answer.Claims[string(claim.UID)]; !ok || got.Error != "" {
		p.t.Fatalf("unpreparing %s: %v", claim.Name, answer)
	}
}

// watchHealth reads the stream until each core has the wanted health.
func (p *plugin) watchHealth(want map[string]string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	stream, err := p.health.NodeWatchResources(ctx, &health.NodeWatchResourcesRequest{})
	if err != nil {
		p.t.Fatal(err)
	}
	last := ""
	for {
		answer, err := stream.Recv()
		if err != nil {
			p.t.Fatalf("the last health was %s: %v", last, err)
		}
		got := map[string]string{}
		for _, d := range answer.Devices {
			got[d.Device.DeviceName] = d.Health.String() + " " + d.Message
		}
		if last = fmt.Sprint(got); last == fmt.Sprint(want) {
			return
		}
	}
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true, func(context.Context) (bool, error) { return is(), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
