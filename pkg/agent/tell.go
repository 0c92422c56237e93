package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/events"
)

const (
	// tellEvery is how often is looked whether there is anything to tell.
	tellEvery = time.Second
	// quietFor is how long a container, or the node, is not told of again. What happens meanwhile is told then,
	// with its number.
	quietFor = time.Minute
	// maxTold bounds how many containers are told of in one look; the others follow in the next ones.
	maxTold = 10
	// seriesFor is how long an Event is repeated before there is a new one.
	seriesFor = 10 * time.Minute
	// maxSeries bounds how many Events are remembered to be repeated.
	maxSeries = 4096
)

// teller writes Events about what the fast path did: each container at most once in quietFor, and with
// numbers instead of one Event for each. An API server that is away gets them afterwards.
type teller struct {
	api     API
	node    string
	world   func() *World
	counted func() *Counted
	clock   clock.WithTicker
	log     logr.Logger

	servers map[string]*page
	series  map[string]*corev1.Event
	lost    uint64
	lostAt  time.Time
	down    bool
	begun   bool
}

// page is what was told of a server, and when. Numbers in Events count since base, so that one that replaces
// another leaves nothing out.
type page struct {
	last, base told
	at, since  time.Time
}

// Name implements Service.
func (t *teller) Name() string { return "events" }

// Run tells until ctx ends.
func (t *teller) Run(ctx context.Context) error {
	t.servers, t.series = map[string]*page{}, map[string]*corev1.Event{}
	every(ctx, t.clock, tellEvery, t.tell)
	return nil
}

func (t *teller) tell(ctx context.Context) {
	world, counted := t.world(), t.counted()
	if world == nil || world.RTNode == nil || counted == nil {
		return
	}
	t.tellNode(ctx, world, counted)
	if counted.Err == nil {
		t.tellServers(ctx, world, counted)
	}
}

// tellServers tells of those that have waited, and remembers what was told only once it was written.
func (t *teller) tellServers(ctx context.Context, world *World, counted *Counted) {
	now, left := t.clock.Now(), maxTold
	there := map[string]bool{}
	reports := map[string]int{}
	for i, s := range counted.Report.Servers {
		reports[s.ID] = i
	}
	for _, spec := range world.RTNode.Spec.Servers {
		id := idOf(spec)
		there[id] = true
		i, ok := reports[id]
		if !ok {
			continue
		}
		s := situation{spec: spec, node: t.node, report: counted.Report.Servers[i], total: counted.Servers[id]}
		known := t.page(id, s, now)
		if left == 0 || !known.at.IsZero() && now.Sub(known.at) < quietFor {
			continue
		}
		list := s.news(known)
		if len(list) == 0 {
			continue
		}
		left--
		if !t.write(ctx, list, known.since) {
			left = 0 // the API server is away, and told of them all later
			continue
		}
		known.last, known.at = s.now(), now
	}
	for id := range t.servers {
		if !there[id] {
			delete(t.servers, id)
		}
	}
	t.begun = true
}

// page of a server, with a base that is not old. What an earlier agent has counted is not told again; what a
// server did that is new is.
func (t *teller) page(id string, s situation, now time.Time) *page {
	known := t.servers[id]
	switch {
	case known == nil && t.begun:
		known = &page{since: now}
	case known == nil:
		known = &page{since: now, base: s.now(), last: s.now()}
	case now.Sub(known.since) >= seriesFor:
		known.base, known.since = known.last, now
	}
	t.servers[id] = known
	return known
}

// news are the Events of which something is new, with their numbers since the base.
func (s situation) news(p *page) []events.Event {
	s.before = p.last
	fresh := map[string]bool{}
	for _, e := range s.happened() {
		fresh[e.Reason] = true
	}
	s.before = p.base
	return slices.DeleteFunc(s.happened(), func(e events.Event) bool { return !fresh[e.Reason] })
}

func (t *teller) tellNode(ctx context.Context, world *World, counted *Counted) {
	now, since := t.clock.Now(), t.clock.Now().Add(-seriesFor)
	node, uid := nodeObject(t.node, world.NodeUID), string(world.NodeUID)
	switch down := counted.Err != nil; {
	case down && !t.down:
		t.down = t.write(ctx, []events.Event{events.FastPathLost(node, uid, counted.Err.Error())}, since)
	case !down && t.down:
		t.down = !t.write(ctx, []events.Event{events.FastPathBack(node, uid)}, since)
	}
	if !t.begun {
		t.lost = counted.Lost
	}
	if counted.Lost > t.lost && now.Sub(t.lostAt) >= quietFor {
		t.lostAt = now
		if t.write(ctx, []events.Event{events.LostEvents(node, uid, counted.Lost-t.lost)}, now) {
			t.lost = counted.Lost
		}
	}
}

// write tells whether all were written. Events of the same kind since a time are repeated.
func (t *teller) write(ctx context.Context, list []events.Event, since time.Time) bool {
	for _, e := range list {
		if err := t.writeOne(ctx, e, since); err != nil {
			if ctx.Err() == nil {
				t.log.V(1).Info("an Event waits", "reason", e.Reason, "why", err.Error())
			}
			return false
		}
	}
	return true
}

func (t *teller) writeOne(ctx context.Context, e events.Event, since time.Time) error {
	key, now := e.Reason+"/"+strings.Join(e.Dedupe, "/"), t.clock.Now()
	if last := t.series[key]; last != nil && !last.FirstTimestamp.Time.Before(since) {
		again := last.DeepCopy()
		again.Count, again.LastTimestamp, again.Message = last.Count+1, metav1.NewTime(now), e.Message
		err := t.api.CountEvent(ctx, again)
		if err == nil {
			t.series[key] = again
			return nil
		}
		if !refusedForGood(err) {
			return err
		}
	}
	made := t.event(e, key, now)
	if err := t.api.CreateEvent(ctx, made); err != nil && !apierrors.IsAlreadyExists(err) {
		if refusedForGood(err) {
			return nil // its namespace is gone or going: there is nobody to tell
		}
		return err
	}
	t.remember(key, made, now)
	return nil
}

// refusedForGood says that trying again would be in vain, and hold the other Events back.
func refusedForGood(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

func (t *teller) remember(key string, made *corev1.Event, now time.Time) {
	if len(t.series) >= maxSeries {
		for k, e := range t.series {
			if now.Sub(e.FirstTimestamp.Time) >= seriesFor {
				delete(t.series, k)
			}
		}
	}
	if len(t.series) < maxSeries {
		t.series[key] = made
	}
}

// event is a core Event. Those of nodes are in namespace default, as the kubelet's are.
func (t *teller) event(e events.Event, key string, now time.Time) *corev1.Event {
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Node"}
	if pod, ok := e.Object.(*corev1.Pod); ok {
		about.Kind, about.Namespace, about.Name, about.UID = "Pod", pod.Namespace, pod.Name, pod.UID
		about.FieldPath = "spec.containers{" + e.Dedupe[len(e.Dedupe)-1] + "}"
	} else if node, ok := e.Object.(*corev1.Node); ok {
		about.Name, about.UID = node.Name, node.UID
	}
	sum := sha256.Sum256([]byte(key + now.String()))
	namespace := about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: prefix(about.Name) + "." + hex.EncodeToString(sum[:8])},
		InvolvedObject: about, Type: e.Type, Reason: e.Reason, Message: e.Message, Count: 1, Action: e.Reason,
		Source: corev1.EventSource{Component: FieldManager, Host: t.node}, ReportingController: FieldManager, ReportingInstance: t.node,
		FirstTimestamp: metav1.NewTime(now), LastTimestamp: metav1.NewTime(now),
	}
}

// prefix leaves room for what makes the name unique.
func prefix(name string) string { return strings.TrimRight(name[:min(len(name), 200)], "-.") }
