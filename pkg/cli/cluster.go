package cli

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/cli/local"
	"github.com/mainspring-rt/mainspring/pkg/cli/stack"
)

// cluster is what demo and replay run on: a stack of this process, or one in the background that may stay.
type cluster struct {
	config *rest.Config
	watch  func(context.Context) error // returns nil when the context ends, or why the cluster ended
	stop   func() error
	kept   *local.State // set when it can stay
}

// startCluster starts a cluster; with keep it is one that can outlive this process.
func startCluster(ctx context.Context, s Streams, settings local.Settings, keep bool) (*cluster, error) {
	if keep {
		return startKept(ctx, s, settings)
	}
	started, err := stack.Start(ctx, stackOptions(settings, s.Err))
	if err != nil {
		return nil, err
	}
	return &cluster{config: unthrottled(started.RESTConfig()), watch: started.Watch, stop: started.Stop}, nil
}

func startKept(ctx context.Context, s Streams, settings local.Settings) (*cluster, error) {
	clk := clock.RealClock{}
	state, err := local.Up(ctx, clk, settings, s.Err)
	if err != nil {
		return nil, err
	}
	// Not the command's context: it has ended when everything is cleaned up.
	down := func() error {
		_, err := local.Down(context.WithoutCancel(ctx), clk, state.Dir)
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", state.Kubeconfig)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reading kubeconfig: %w", err), down())
	}
	watch := func(ctx context.Context) error { return state.Wait(ctx, clk) }
	return &cluster{config: unthrottled(config), watch: watch, stop: down, kept: &state}, nil
}

// finish ends the cluster, or leaves it and tells how to use it when it is to stay and nobody interrupted.
func (c *cluster) finish(ctx context.Context, s Streams, kubectl string) error {
	if c.kept != nil && ctx.Err() == nil {
		fmt.Fprintln(s.Out)
		c.kept.Tell(s.Out, kubectl)
		return nil
	}
	fmt.Fprintln(s.Err, "stopping the cluster and removing its files")
	return c.stop()
}

// unthrottled lets the API server's own fairness decide; the cluster has no other users.
func unthrottled(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	return config
}
