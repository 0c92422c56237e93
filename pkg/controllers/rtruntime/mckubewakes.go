package rtruntime

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// wakes chooses the McKubes that a change of a node concerns. Agents write their status at least once a minute; a
// heartbeat alone reconciles no McKube.
type wakes struct {
	latest func() *state.Snapshot
	mu     sync.Mutex
	seen   map[string]*state.NodeView
}

func newWakes(latest func() *state.Snapshot) *wakes {
	return &wakes{latest: latest, seen: map[string]*state.NodeView{}}
}

// pick are the McKubes of a change of the cache, each once.
func (w *wakes) pick(_ *state.Snapshot, c state.Change) []reconcile.Request {
	keys := map[types.NamespacedName]bool{}
	for _, key := range c.McKubes {
		keys[key] = true
	}
	for _, name := range c.Nodes {
		before, after := w.replace(name)
		for _, server := range concerned(before, after) {
			if server.McKube != nil {
				keys[client.ObjectKeyFromObject(server.McKube)] = true
			}
		}
	}
	out := make([]reconcile.Request, 0, len(keys))
	for key := range keys {
		out = append(out, reconcile.Request{NamespacedName: key})
	}
	return out
}

// replace remembers the node as it is now, and returns how it was; nil for not there. It looks under its
// lock, so that no older picture follows a newer one.
func (w *wakes) replace(name string) (before, after *state.NodeView) {
	w.mu.Lock()
	defer w.mu.Unlock()
	after, _ = w.latest().NodeView(name)
	before = w.seen[name]
	if after == nil {
		delete(w.seen, name)
	} else {
		w.seen[name] = after
	}
	return before, after
}

// concerned are the servers that are not what they were, those that wait for a core when room came free,
// and all when it is the node itself that changed.
func concerned(before, after *state.NodeView) []state.ServerView {
	switch {
	case before == nil && after == nil:
		return nil
	case before == nil:
		return after.Servers
	case after == nil:
		return before.Servers
	case !sameNode(before, after):
		return append(slices.Clone(before.Servers), after.Servers...)
	}
	was := make(map[string]*state.ServerView, len(before.Servers))
	for i := range before.Servers {
		was[before.Servers[i].ID] = &before.Servers[i]
	}
	room, over := freed(before, after), overbooked(after)
	var out []state.ServerView
	for i := range after.Servers {
		server := after.Servers[i]
		switch old := was[server.ID]; {
		case old == nil || room && server.Witness == rt.NoCore || len(over.of(&server)) > 0:
			out = append(out, server)
		case !sameServer(old, &server):
			out = append(out, *old, server) // their McKubes may differ
		}
		delete(was, server.ID)
	}
	for _, gone := range was {
		out = append(out, *gone)
	}
	return out
}

// freed tells whether a core has more room than before. Reservations do not count: the loop makes them itself.
func freed(before, after *state.NodeView) bool {
	for i := range after.Cores {
		core := &after.Cores[i]
		old, ok := before.Core(core.ID)
		if !ok || core.Claimed < old.Claimed || core.Placed < old.Placed || core.Capacity > old.Capacity {
			return true
		}
	}
	return false
}

func sameNode(a, b *state.NodeView) bool {
	return a.UID == b.UID && a.Agent == b.Agent && a.Stale == b.Stale && a.Offered == b.Offered &&
		a.Backend == b.Backend && a.Measured == b.Measured && (a.RTNode == nil) == (b.RTNode == nil) && len(a.Cores) == len(b.Cores)
}

func sameServer(a, b *state.ServerView) bool {
	return a.McKube == b.McKube && a.Witness == b.Witness && a.Physical == b.Physical && a.Claimed == b.Claimed && a.Running == b.Running &&
		equality.Semantic.DeepEqual(a.Spec, b.Spec) && equality.Semantic.DeepEqual(a.Applied, b.Applied)
}
