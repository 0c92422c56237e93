package nri

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/go-logr/logr"
)

// How the plugin is registered.
const (
	pluginName  = "mainspring"
	pluginIndex = "80" // late: what others set, ours comes after
)

// Waits between two tries to connect.
const (
	firstWait = 200 * time.Millisecond
	maxWait   = 10 * time.Second
)

// DefaultSocket is the runtime's.
const DefaultSocket = api.DefaultSocketPath

// Run serves the runtime until ctx ends, and connects again whenever the runtime went away or dropped the
// plugin. It returns an error only for what trying again does not mend.
func Run(ctx context.Context, config Config) error {
	p := &plugin{Config: config, log: logr.FromContextOrDiscard(ctx).WithName("nri")}
	for wait := firstWait; ; wait = min(2*wait, maxWait) {
		s, err := p.stub()
		if err != nil {
			return fmt.Errorf("making the NRI plugin: %w", err)
		}
		began := p.Clock.Now()
		reason := reasonOf(s.Run(ctx))
		if p.Clock.Since(began) > maxWait {
			wait = firstWait
		}
		if ctx.Err() == nil {
			p.log.Info("The runtime's NRI is not connected; containers are made without a budget until it is", "socket", config.Socket, "reason", reason, "again", wait)
		}
		if !p.sleep(ctx, wait) {
			return nil
		}
	}
}

func reasonOf(err error) string {
	if err == nil {
		return "the runtime closed the connection"
	}
	return err.Error()
}

// sleep tells whether the time passed before ctx ended.
func (p *plugin) sleep(ctx context.Context, d time.Duration) bool {
	timer := p.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}

// stub asks the runtime to keep a plugin that once was late, and to go on without it then: an agent in
// trouble must not stop the node's other pods.
func (p *plugin) stub() (stub.Stub, error) {
	return stub.New(p, stub.WithPluginName(pluginName), stub.WithPluginIdx(pluginIndex), stub.WithSocketPath(p.Socket),
		stub.WithLogger(logger{p.log}), stub.WithFailurePolicy(&api.FailurePolicy{KeepConnected: true}))
}

// logger passes the stub's words on.
type logger struct{ log logr.Logger }

func (l logger) Debugf(_ context.Context, format string, args ...any) {
	l.log.V(1).Info("NRI stub", "said", fmt.Sprintf(format, args...))
}

func (l logger) Infof(ctx context.Context, format string, args ...any) {
	l.Debugf(ctx, format, args...)
}

func (l logger) Warnf(_ context.Context, format string, args ...any) {
	l.log.Info("NRI stub", "warned", fmt.Sprintf(format, args...))
}

func (l logger) Errorf(_ context.Context, format string, args ...any) {
	l.log.Error(nil, "NRI stub", "fault", fmt.Sprintf(format, args...))
}
