package operator

import (
	"time"

	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
)

// PressureOptions are the settings of the answer to real-time pressure.
type PressureOptions struct{ ladder.Options }

func (o *PressureOptions) addFlags(fs *options.FlagSet) {
	d := ladder.Defaults()
	fs.IntVar(&o.Overruns, "rt-pressure-overruns", d.Overruns, "Overruns of its highest budget, within --rt-pressure-window, from which a container of criticality Middle or High puts its node under real-time pressure")
	for _, f := range []struct {
		value     *time.Duration
		otherwise time.Duration
		name, use string
	}{
		{&o.Window, d.Window, "window", "For how long overruns count, and for how long none must be seen before the pressure counts as gone"},
		{&o.Delay, d.Delay, "delay", "How long a High container must be without a core, or a raise without room on a busy node, before the node is under real-time pressure"},
		{&o.Settle, d.Settle, "settle", "How long an action against real-time pressure is left to show what it brought before the next"},
		{&o.Patience, d.Patience, "patience", "How long an action against real-time pressure may wait for its turn before another is tried"},
		{&o.NodeTimeout, d.NodeTimeout, "node-timeout", "How long a node may take to be opened or replaced against real-time pressure before that is undone, and how long a pending pod waits for nodes that are opened for it before less critical ones are evicted"},
		{&o.Calm, d.Calm, "calm", "How long real-time pressure must be gone before anything is given back; doubled with each relapse"},
		{&o.RecoveryInterval, d.RecoveryInterval, "recovery-interval", "The time between two steps of giving back what real-time pressure took"},
	} {
		fs.DurationVar(f.value, "rt-pressure-"+f.name, f.otherwise, f.use)
	}
}
