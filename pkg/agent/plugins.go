package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/agent/driver"
	"github.com/mainspring-rt/mainspring/pkg/agent/nri"
)

// pluginAgain is the pause before plugins are started again that failed.
const pluginAgain = 5 * time.Second

// plugins serves the kubelet and the container runtime: claims on cores, and budgets of containers that are about
// to be created. Both come back by themselves.
type plugins struct {
	driver driver.Config
	nri    nri.Config // without a socket there is none
	offers *offers
	clock  clock.Clock
	log    logr.Logger
}

// Name implements Service.
func (p *plugins) Name() string { return "plugins" }

// Run serves until ctx ends.
func (p *plugins) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := p.serve(logr.NewContext(ctx, p.log)); ctx.Err() == nil {
			p.log.Error(err, "serving the kubelet and the container runtime; starting again", "after", pluginAgain)
		}
		timer := p.clock.NewTimer(pluginAgain)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C():
		}
	}
	return nil
}

// serve runs the driver, and with it the NRI plugin, which asks it for claims, until one ends.
func (p *plugins) serve(ctx context.Context) error {
	d, err := driver.Start(ctx, p.driver)
	if err != nil {
		return err
	}
	defer d.Stop()
	update := d.Update
	p.offers.update.Store(&update)
	defer p.offers.update.Store(nil)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return ended("the DRA plugin", d.Wait())
	})
	if p.nri.Socket != "" {
		config := p.nri
		config.Claims = d
		group.Go(func() error { return ended("the NRI plugin", nri.Run(ctx, config)) })
	}
	group.Go(func() error { <-ctx.Done(); d.Stop(); return nil })
	return group.Wait()
}

func ended(what string, err error) error {
	if err == nil {
		return fmt.Errorf("%s has ended", what)
	}
	return fmt.Errorf("%s has ended: %w", what, err)
}
