package agent

import (
	"context"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/agent/driver"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// offerEvery is how often the machine's cores are read again while the fast path's stay the same: cores go on- and
// offline.
const offerEvery = 10 * time.Second

// offers knows which cores the node offers now.
type offers struct {
	counted func() *Counted
	machine func() (host.Topology, error)
	reserve rt.PPM
	clock   clock.WithTicker
	log     logr.Logger

	current atomic.Pointer[driver.Offer]
	update  atomic.Pointer[func(table.Report) error] // of the driver, while there is one
	basis   []any
	at      time.Time
	trouble string
}

// Name implements Service.
func (o *offers) Name() string { return "offer" }

// Cores that are offered.
func (o *offers) Cores() []rt.Core {
	if offer := o.current.Load(); offer != nil {
		return offer.Cores
	}
	return nil
}

// Run looks until ctx ends.
func (o *offers) Run(ctx context.Context) error {
	every(ctx, o.clock, pollEvery, func(context.Context) { o.look() })
	return nil
}

// look compares the machine with the report, when it is time.
func (o *offers) look() {
	c := o.counted()
	if c == nil || c.Report.Instance == "" {
		return
	}
	update, now := o.update.Load(), o.clock.Now()
	basis := []any{c.Report.Backend, c.Report.GranularityUs, capacities(c.Report), update}
	if now.Sub(o.at) < offerEvery && reflect.DeepEqual(basis, o.basis) {
		return
	}
	o.basis, o.at = basis, now
	machine, err := o.machine()
	if err == nil {
		var offer driver.Offer
		offer, err = driver.OfferOf(c.Report, machine.Cores, o.reserve)
		o.current.Store(&offer)
	}
	if update != nil {
		// Also when nothing may be offered: what was published has to go then.
		if updated := (*update)(c.Report); err == nil {
			err = updated
		}
	}
	o.note(err)
}

// note logs what keeps cores from being offered, once.
func (o *offers) note(err error) {
	trouble := ""
	if err != nil {
		trouble = err.Error()
	}
	if err != nil && trouble != o.trouble {
		o.log.Error(err, "offering cores; trying on")
	}
	o.trouble = trouble
}

// capacities are what an offer is made of; promises change all the time.
func capacities(r table.Report) map[int][2]int64 {
	out := make(map[int][2]int64, len(r.Cores))
	for _, c := range r.Cores {
		out[c.ID] = [2]int64{c.CapacityPpm, int64(min(c.Broken, 1))}
	}
	return out
}
