package orchestration

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

const (
	// stepTimeout bounds one step of an executor.
	stepTimeout = 30 * time.Second
	// writeTimeout bounds what one loop asks of the API server in one go.
	writeTimeout = 30 * time.Second
	// takeOverTimeout bounds taking over: each action that is not over is written.
	takeOverTimeout = 5 * time.Minute
	// poll is when to look again at an action that runs, should nothing wake it before.
	poll = time.Second
	// again is when to ask the world again, should nothing wake the dispatcher before.
	again = 2 * time.Second
	// regain is when to take the queue back from another, longer than a process goes on that has lost the election.
	regain = 30 * time.Second
	// retention is for how long an action is kept after it is over and its cause was last asked about.
	retention = 10 * time.Minute
	// kept is how many actions that are over are kept, but for those that are still needed.
	kept = 500
	// keptAlike is how many of the attempts at the same that came to nothing in the same way are kept, the last ones: a pressure
	// that goes on for ever has attempts for ever. It is more than any controller counts up to.
	keptAlike = 8
	// needy is how long an action is kept beyond that after its cause was last asked about: the controller that goes on about the
	// cause counts on what was done.
	needy = 2 * time.Minute
	// rest is how long nothing is tried again after the first attempt that came to nothing; it doubles with each.
	rest = 30 * time.Second
	// restMost is the longest such rest.
	restMost = 10 * time.Minute
)

// Options are the limits of the queue. Zero values mean the default.
type Options struct {
	// NodeLimit is how many actions may share a node, NamespaceLimit how many pods of a namespace may be on the move at
	// once, ClusterLimit how many actions may run at once. Defaults: 5, 20, 50.
	NodeLimit, NamespaceLimit, ClusterLimit int
	// AgeStep is after what wait an action counts as one class more critical. Default: ten minutes.
	AgeStep time.Duration
}

// Defaults of the limits.
const (
	DefaultNodeLimit      = 5
	DefaultNamespaceLimit = 20
	DefaultClusterLimit   = 50
	DefaultAgeStep        = 10 * time.Minute
)

func (o Options) withDefaults() Options {
	for _, limit := range []struct {
		value     *int
		otherwise int
	}{{&o.NodeLimit, DefaultNodeLimit}, {&o.NamespaceLimit, DefaultNamespaceLimit}, {&o.ClusterLimit, DefaultClusterLimit}} {
		if *limit.value <= 0 {
			*limit.value = limit.otherwise
		}
	}
	if o.AgeStep <= 0 {
		o.AgeStep = DefaultAgeStep
	}
	return o
}

func (o Options) rules() rules.Options { return rules.Options{AgeStep: o.AgeStep} }

// limit of a resource; ok is false for those that have none here.
func (o Options) limit(r rules.Resource) (limit int, ok bool) {
	switch r {
	case rules.Pod:
		return 1, true
	case rules.Node:
		return o.NodeLimit, true
	case rules.Namespace:
		return o.NamespaceLimit, true
	case rules.Cluster:
		return o.ClusterLimit, true
	}
	return 0, false
}

// Recorder takes Events.
type Recorder interface {
	Publish(list ...events.Event)
}

// Nodes tells what others do to nodes.
type Nodes interface {
	// Disrupted tells why a node is being closed already; empty: it is not.
	Disrupted(node string) string
	// Allowed is what each NodePool's disruption budgets allow now.
	Allowed(ctx context.Context) (map[string]PoolAllowance, error)
}

// PoolAllowance is what the disruption budgets of a NodePool allow.
type PoolAllowance struct {
	// Nodes is how many more nodes may go now; negative: more go than may.
	Nodes int
	// Invalid says which field of a budget cannot be read. Karpenter then lets no node go, at any time. Empty: all can be read.
	Invalid string
}

// Dependencies are the collaborators of the queue. All are required.
type Dependencies struct {
	Clock clock.Clock
	// Client writes, and may read from a cache; Reader asks the API server itself.
	Client client.Client
	Reader client.Reader
	// Recorder is told what users may wonder about.
	Recorder Recorder
	Nodes    Nodes
	// Lease says which queue may start actions. It also has those that users have deleted.
	Lease types.NamespacedName
	// Identity tells this queue from every other, of other processes too.
	Identity string
	Options  Options
}

func (d Dependencies) validate() error {
	if d.Lease.Namespace == "" || d.Lease.Name == "" || d.Identity == "" {
		return fmt.Errorf("making the orchestration queue: Lease %q and identity %q must be named", d.Lease, d.Identity)
	}
	return nil
}
