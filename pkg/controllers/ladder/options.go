package ladder

import (
	"fmt"
	"time"
)

// Options are the settings of the escalation.
type Options struct {
	// Overruns at the highest budget within Window from which a container of criticality Middle or High is under
	// pressure. It stays so until none was seen for Window.
	Overruns int
	Window   time.Duration
	// Delay is how long a High container must be without a core, or a raise without room on a busy node.
	Delay time.Duration
	// Settle is how long an action that was done is left to show what it brought.
	Settle time.Duration
	// Patience is how long an action may wait for its turn before another is tried.
	Patience time.Duration
	// NodeTimeout is how long a node may take to be opened or replaced before that is undone.
	NodeTimeout time.Duration
	// Calm is how long the pressure must be gone before the recovery begins; each relapse doubles it.
	Calm time.Duration
	// RecoveryInterval is the time between two steps of the recovery.
	RecoveryInterval time.Duration
}

// Defaults of the options.
func Defaults() Options {
	return Options{
		Overruns: 5, Window: 10 * time.Second, Delay: 5 * time.Second, Settle: 10 * time.Second, Patience: 30 * time.Second,
		NodeTimeout: 20 * time.Minute, Calm: time.Minute, RecoveryInterval: 15 * time.Second,
	}
}

// Validate says which flag is wrong, and what would be right.
func (o Options) Validate() error {
	if o.Overruns < 1 || o.Overruns > 10000 {
		return fmt.Errorf("--rt-pressure-overruns is %d; it must be from 1 to 10000", o.Overruns)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"window", o.Window}, {"delay", o.Delay}, {"settle", o.Settle}, {"patience", o.Patience}, {"node-timeout", o.NodeTimeout},
		{"calm", o.Calm}, {"recovery-interval", o.RecoveryInterval},
	} {
		if d.value < time.Second || d.value > time.Hour {
			return fmt.Errorf("--rt-pressure-%s is %s; it must be from 1s to 1h", d.name, d.value)
		}
	}
	return nil
}
