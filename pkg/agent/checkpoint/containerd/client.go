package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	leases "github.com/containerd/containerd/api/services/leases/v1"
	version "github.com/containerd/containerd/api/services/version/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
)

const (
	// namespace is where containerd keeps what the kubelet uses.
	namespace = "k8s.io"
	// callTimeout bounds a call that moves no data.
	callTimeout = 30 * time.Second
	// maxMessage bounds an answer; the CRI's lists are the largest.
	maxMessage = 16 << 20
)

// DefaultSocket is where containerd listens.
const DefaultSocket = "/run/containerd/containerd.sock"

// ErrNoRestore means that this containerd makes no containers from checkpoints.
var ErrNoRestore = errors.New("the runtime does not restore")

// Client of one containerd.
type Client struct {
	conn        *grpc.ClientConn
	snapshotter string
	clock       clock.WithTicker
}

// New makes a client; it connects when it is used, and again after containerd was started anew.
func New(socket, snapshotter string, c clock.WithTicker) (*Client, error) {
	conn, err := grpc.NewClient("unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a socket that only root opens
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("making the client of containerd: %w", err)
	}
	return &Client{conn: conn, snapshotter: snapshotter, clock: c}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// in has a call reach the kubelet's things.
func in(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
}

// short is in, with a bound.
func short(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(in(ctx), callTimeout)
}

// Version of containerd, as it tells it.
func (c *Client) Version(ctx context.Context) (string, error) {
	ctx, cancel := short(ctx)
	defer cancel()
	answer, err := version.NewVersionClient(c.conn).Version(ctx, &emptypb.Empty{})
	if err != nil {
		return "", fmt.Errorf("asking containerd for its version: %w", err)
	}
	return answer.GetVersion(), nil
}

// Restores says whether containers can be made from checkpoints, by the configuration that the runtime tells of itself. An
// error that is ErrNoRestore says why not.
func (c *Client) Restores(ctx context.Context) error {
	ctx, cancel := short(ctx)
	defer cancel()
	answer, err := cri.NewRuntimeServiceClient(c.conn).Status(ctx, &cri.StatusRequest{Verbose: true})
	if err != nil {
		return fmt.Errorf("asking containerd for its configuration: %w", err)
	}
	return restores([]byte(answer.GetInfo()["config"]))
}

// restores judges the CRI plugin's configuration.
func restores(config []byte) error {
	var read struct {
		EnableCRIU *bool `json:"enableCRIU"`
		Restore    *bool `json:"enableExperimentalRestoreViaCreate"`
	}
	if err := json.Unmarshal(config, &read); err != nil {
		return fmt.Errorf("reading containerd's configuration: %w", err)
	}
	switch {
	case read.EnableCRIU != nil && !*read.EnableCRIU:
		return fmt.Errorf("%w: enable_criu is false in containerd's configuration", ErrNoRestore)
	case read.Restore == nil:
		return fmt.Errorf("%w: this containerd has no restore (2.4 removed it, and before 2.2.7 it cannot be asked)", ErrNoRestore)
	case !*read.Restore:
		return fmt.Errorf("%w: enable_experimental_restore_via_create is not true in containerd's configuration", ErrNoRestore)
	}
	return nil
}

// leased has containerd keep what a call makes until the returned function is called, or the time is over.
func (c *Client) leased(ctx context.Context, id string, keep time.Duration) (context.Context, func(), error) {
	ctx = in(ctx)
	client := leases.NewLeasesClient(c.conn)
	_, err := client.Create(ctx, &leases.CreateRequest{ID: id, Labels: map[string]string{
		"containerd.io/gc.expire": c.clock.Now().Add(keep).UTC().Format(time.RFC3339),
	}})
	if err != nil && !is(err, codes.AlreadyExists) {
		return nil, nil, fmt.Errorf("making a lease: %w", err)
	}
	done := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		_, _ = client.Delete(ctx, &leases.DeleteRequest{ID: id}) // it ends by itself
	}
	return metadata.AppendToOutgoingContext(ctx, "containerd-lease", id), done, nil
}

func is(err error, code codes.Code) bool { return status.Code(err) == code }
