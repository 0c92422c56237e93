package agent

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/agent/lean"
)

const (
	// trimAfter is when starting is over.
	trimAfter = 10 * time.Second
	// trimEvery is how often pages that were needed once are given back.
	trimEvery = time.Minute
)

// trimmer gives memory back that only starting needed.
type trimmer struct {
	clock clock.Clock
	log   logr.Logger
}

// Name implements Service.
func (t *trimmer) Name() string { return "trim" }

// Run trims until ctx ends.
func (t *trimmer) Run(ctx context.Context) error {
	for wait := trimAfter; ; wait = trimEvery {
		timer := t.clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
		if err := lean.Trim(true); err != nil {
			t.log.V(1).Info("the program's pages stay in memory", "why", err.Error())
		}
	}
}
