package state

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// DefaultGranularity is what is charged to every budget at least, in microseconds.
const DefaultGranularity = 100

// unresolvedGrace is the time after the first lists during which claims may name pods and nodes that the store has not seen. The
// lists of different kinds are not of one moment. What is still unknown after that is gone.
const unresolvedGrace = 10 * time.Second

// Options of a Store.
type Options struct {
	// Granularity in microseconds is charged to every budget at least, as in the claims. 0:
	// DefaultGranularity.
	Granularity int64
	// Clock judges reservations. nil: the wall clock.
	Clock clock.PassiveClock
}

// Store keeps the current snapshot. Many may read and write it at once. A new Store collects objects
// and answers nothing until Complete.
type Store struct {
	clock clock.PassiveClock

	current atomic.Pointer[Snapshot]
	// expiry is when the first reservation ends, in nanoseconds of Unix time; 0: there is none.
	expiry atomic.Int64
	// resolved is set when every claim was found to name a known pod and node, or has had its time.
	resolved atomic.Bool

	mu        sync.Mutex
	next      Snapshot // what is being made; current is a copy
	collected *dirty   // nil once complete
	since     time.Time
	listeners []func(Change)
}

// Change is what a publication changed, for the controllers that queue work. It may name objects that turned out the same.
type Change struct {
	Nodes         []string
	Pods, McKubes []types.NamespacedName
}

// New makes an empty store.
func New(o Options) *Store {
	if o.Granularity == 0 {
		o.Granularity = DefaultGranularity
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	s := &Store{clock: o.Clock, next: Snapshot{granularity: o.Granularity}, collected: newDirty()}
	s.current.Store(&Snapshot{granularity: o.Granularity})
	return s
}

// Build makes a complete store from objects, in whatever order.
func Build(o Options, objects ...runtime.Object) (*Store, error) {
	s := New(o)
	for _, obj := range objects {
		if err := s.Update(obj); err != nil {
			return nil, err
		}
	}
	s.Complete()
	return s, nil
}

// Listen has f called after each publication, from the goroutine that caused it. f must not block and must not call the store's
// writing methods. A late listener finds earlier changes in the snapshot.
func (s *Store) Listen(f func(Change)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(slices.Clip(s.listeners), f)
}

// Snapshot is the state now, without expired reservations. Before Complete it is empty.
func (s *Store) Snapshot() *Snapshot {
	if end := s.expiry.Load(); end != 0 && s.clock.Now().UnixNano() >= end {
		s.write(func(next *Snapshot, d *dirty) error { return s.expire(next, d) }) //nolint:errcheck // expiring cannot fail
	}
	return s.current.Load()
}

// Update puts an object in the place of its predecessor. The object must not change afterwards. The
// error is about its kind.
func (s *Store) Update(obj runtime.Object) error {
	return s.write(func(next *Snapshot, d *dirty) error { return next.apply(obj, d) })
}

// Delete removes an object. One that has taken its name meanwhile stays: objects are told apart by UID.
func (s *Store) Delete(obj runtime.Object) error {
	return s.write(func(next *Snapshot, d *dirty) error { return next.forget(obj, d) })
}

// Complete says that every object that existed has been given. From here on the store answers.
func (s *Store) Complete() {
	s.mu.Lock()
	d := s.collected
	if d == nil {
		s.mu.Unlock()
		return
	}
	s.collected, s.since = nil, s.clock.Now()
	s.publish(d)
	listeners := s.listeners
	s.mu.Unlock()
	s.tell(listeners, d)
}

// Synced is nil when decisions may be taken, else what is missing: the first lists of objects, or pods
// and nodes that claims name. Once nil it stays so.
func (s *Store) Synced() error {
	if s.resolved.Load() {
		return nil
	}
	s.mu.Lock()
	complete, since := s.collected == nil, s.since
	s.mu.Unlock()
	if !complete {
		return fmt.Errorf("waiting for the first lists of nodes, pods, McKubes, claims, slices and RTNodes")
	}
	if open := s.current.Load().unresolved(); open != "" && s.clock.Now().Before(since.Add(unresolvedGrace)) {
		return fmt.Errorf("waiting for what claims name: %s", open)
	}
	s.resolved.Store(true)
	return nil
}

// unresolved names a claim that has a core on an unknown node, or of an unknown pod.
func (s *Snapshot) unresolved() string {
	for _, claim := range s.claims.all() {
		if !claim.Allocated() {
			continue
		}
		if _, ok := s.nodes.get(pair{first: claim.Node}); !ok {
			return fmt.Sprintf("claim %s/%s names node %s", claim.Namespace, claim.Name, claim.Node)
		}
		if _, ok := s.Pod(claim.PodUID); !ok && claim.PodUID != "" {
			return fmt.Sprintf("claim %s/%s names pod %s", claim.Namespace, claim.Name, claim.PodUID)
		}
	}
	return ""
}

// write changes the next snapshot and publishes it.
func (s *Store) write(change func(*Snapshot, *dirty) error) error {
	s.mu.Lock()
	if s.collected != nil {
		defer s.mu.Unlock()
		return change(&s.next, s.collected)
	}
	d := newDirty()
	if err := change(&s.next, d); err != nil {
		s.mu.Unlock()
		return err
	}
	s.next.matched(d)
	s.publish(d)
	listeners := s.listeners
	s.mu.Unlock()
	s.tell(listeners, d)
	return nil
}

// publish derives what is dirty and lets readers see it.
func (s *Store) publish(d *dirty) {
	s.next.settle(d)
	published := s.next
	s.current.Store(&published)
}

// tell calls the listeners.
func (s *Store) tell(listeners []func(Change), d *dirty) {
	if len(listeners) == 0 {
		return
	}
	change := s.current.Load().changed(d)
	for _, f := range listeners {
		f(change)
	}
}

// changed puts what is dirty into words, with the McKubes of the pods.
func (s *Snapshot) changed(d *dirty) Change {
	nodes := maps.Clone(d.nodes)
	for _, b := range d.booked {
		nodes[b.node] = true
	}
	out := Change{Nodes: slices.Sorted(maps.Keys(nodes))}
	mckubes := maps.Clone(d.mckubes)
	for _, key := range d.former {
		mckubes[key] = true
	}
	for uid := range d.pods {
		pod, ok := s.Pod(uid)
		if !ok {
			continue
		}
		out.Pods = append(out.Pods, pod.Key())
		for _, g := range pod.Governed {
			mckubes[pair{g.McKube.Namespace, g.McKube.Name}] = true
			for _, rival := range g.Rivals {
				mckubes[pair{rival.Namespace, rival.Name}] = true
			}
		}
	}
	for key := range mckubes {
		out.McKubes = append(out.McKubes, types.NamespacedName{Namespace: key.first, Name: key.second})
	}
	return out
}
