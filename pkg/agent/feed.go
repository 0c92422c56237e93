package agent

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/agent/discover"
	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// FastPath is the process that governs; client.Client speaks to it.
type FastPath interface {
	Apply(ctx context.Context, t table.Table) error
	Report(ctx context.Context) (table.Report, error)
	Set(ctx context.Context, r client.SetRequest) error
}

// Applied is what the fast path was last told. It never changes.
type Applied struct {
	// RTNode that the table was made of; empty for none.
	RTNode types.UID
	Table  table.Table
	// Found are the containers of the table's servers.
	Found map[discover.Key]discover.Found
	// Faults of the spec: what is wrong with each server or plan, by ID. They are not in the table, or as they
	// were before.
	Faults map[string]string
	// Vanished says that the RTNode has gone and is gone by all the same; empty while it is there.
	Vanished string
	// Instance of the fast path that took it. Empty when none has: Err says why.
	Instance string
	Err      error
}

const (
	// feedAgain is the first pause after a failure, feedSlowest the longest.
	feedAgain   = 100 * time.Millisecond
	feedSlowest = 5 * time.Second
)

// What is in the log when an RTNode is gone that was there, and when one is older than what is in force.
var (
	errVanished = errors.New("the RTNode has gone")
	errBehind   = errors.New("the RTNode is older than the one whose table is in force")
)

// feeder gives the fast path a table whenever what it is made of has changed, and again when the
// fast path is another instance. It tries for ever.
type feeder struct {
	fast     FastPath
	finder   *discover.Finder
	world    func() *World
	counted  func() *Counted
	changed  *signal // the world, a container, or the fast path
	applied  atomic.Pointer[Applied]
	clock    clock.Clock
	log      logr.Logger
	failures int
	memory   memory
}

// Name implements Service.
func (f *feeder) Name() string { return "feed" }

// Applied is what was last told; nil before the first time.
func (f *feeder) Applied() *Applied { return f.applied.Load() }

// OfPod are the servers of a pod in the present table. Their groups are empty while the containers do not run.
func (f *feeder) OfPod(pod types.UID) []table.Server {
	a := f.applied.Load()
	if a == nil {
		return nil
	}
	var out []table.Server
	for _, s := range a.Table.Servers {
		if strings.HasPrefix(s.ID, rtdra.ServerID(pod, "")) {
			out = append(out, s)
		}
	}
	return out
}

// Run feeds until ctx ends.
func (f *feeder) Run(ctx context.Context) error {
	for {
		wait := f.feed(ctx)
		timer := f.clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-f.changed.raised():
			timer.Stop()
		case <-timer.C():
		}
	}
}

// feed tells the fast path what is new, and says after what time to look again. Nothing is told
// before the API server has been heard: the fast path has its last table.
func (f *feeder) feed(ctx context.Context) time.Duration {
	world := f.world()
	if world == nil {
		return feedSlowest
	}
	former := f.memory.behind
	spec, known := f.memory.spec(world.RTNode, f.clock.Now(), f.inForce())
	if former.IsZero() && !f.memory.behind.IsZero() {
		f.log.Error(errBehind, "waiting for the newer one; until then everything stays as it is", "generation", world.RTNode.Generation, "inForce", f.inForce().generation)
	}
	if !known {
		return f.pause(false)
	}
	found, complete := f.finder.Find(world.Containers)
	if f.waitsForPods(spec, found) {
		return f.pause(false)
	}
	next, before := f.next(spec, found), f.applied.Load()
	instance := f.instance()
	if before != nil && before.Err == nil && before.Instance == instance && before.same(next) {
		return f.pause(complete)
	}
	if next.Err = f.fast.Apply(ctx, next.Table); next.Err == nil {
		next.Instance = instance
	}
	f.note(next)
	f.applied.Store(next)
	return f.pause(complete && next.Err == nil)
}

// waitsForPods: this agent has told nothing yet, and has not heard of everybody who is governed.
func (f *feeder) waitsForPods(spec *v1alpha1.RTNode, found map[discover.Key]discover.Found) bool {
	counted, first := f.counted(), f.memory.unheard.IsZero()
	if f.applied.Load() != nil || counted == nil {
		return false
	}
	servers := unheard(spec, counted.Report, found)
	waits := f.memory.waits(servers, f.clock.Now())
	if waits && first {
		f.log.Error(errUnheard, "waiting for their Pods for a minute; until then everything stays as it is", "servers", servers)
	}
	return waits
}

// next is what the fast path should be told.
func (f *feeder) next(spec *v1alpha1.RTNode, found map[discover.Key]discover.Found) *Applied {
	next := &Applied{Found: found, Vanished: f.memory.vanished()}
	next.Table, next.Faults = Build(spec, found)
	if before := f.applied.Load(); before != nil && len(next.Faults) > 0 {
		next.Table = retain(next.Table, next.Faults, before.Table, found)
	}
	if spec != nil {
		next.RTNode = spec.UID
	}
	return next
}

// same says that the fast path needs not be told again.
func (a *Applied) same(next *Applied) bool {
	return a.RTNode == next.RTNode && a.Vanished == next.Vanished && reflect.DeepEqual(a.Table, next.Table) && reflect.DeepEqual(a.Faults, next.Faults)
}

// inForce is what the fast path has, as its last report says.
func (f *feeder) inForce() inForce {
	c := f.counted()
	if c == nil || c.Report.Instance == "" {
		return inForce{}
	}
	return inForce{known: true, servers: len(c.Report.Servers), origin: types.UID(c.Report.Origin), generation: c.Report.Generation}
}

// instance of the fast path, as its last report says; empty before the first.
func (f *feeder) instance() string {
	if c := f.counted(); c != nil {
		return c.Report.Instance
	}
	return ""
}

// pause grows while something is not as it should be.
func (f *feeder) pause(well bool) time.Duration {
	if well {
		f.failures = 0
		return feedSlowest
	}
	wait := min(feedAgain<<min(f.failures, 10), feedSlowest)
	f.failures++
	return wait
}

// note logs what has changed about success, once.
func (f *feeder) note(next *Applied) {
	before := f.applied.Load()
	if next.Vanished != "" && (before == nil || before.Vanished == "") {
		f.log.Error(errVanished, "the containers of this node keep what they have", "detail", next.Vanished)
	}
	switch {
	case next.Err == nil:
		f.log.V(1).Info("gave the fast path a table", "generation", next.Table.Generation, "servers", len(next.Table.Servers), "faults", len(next.Faults))
	case before == nil || before.Err == nil || before.Err.Error() != next.Err.Error():
		f.log.Error(next.Err, "giving the fast path a table; trying on")
	}
}

// refusedTable says that the fast path took a table to be wrong, and what is.
func refusedTable(err error) (string, bool) {
	status := (*client.StatusError)(nil)
	if errors.As(err, &status) {
		return fmt.Sprintf("the fast path refuses the table: %s", status.Reason), true
	}
	return "", false
}
