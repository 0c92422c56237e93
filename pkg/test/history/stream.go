package history

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// stream records one kind. A watch that ends is resumed where it ended; when the server no longer
// has that position, the kind is listed again, differences are recorded as inferred versions and
// the gap is reported.
type stream struct {
	client client.WithWatch
	list   func() client.ObjectList
	add    func(Version)
	gap    func(string)

	revision string // where the watch resumes

	mu       sync.Mutex
	live     map[types.UID]Version
	last     uint64 // revision of the newest version on record
	recorded int    // versions on record
	watching bool   // a watch is open
}

func newStream(c client.WithWatch, list func() client.ObjectList, add func(Version), gap func(string)) *stream {
	return &stream{client: c, list: list, add: add, gap: gap, live: map[types.UID]Version{}}
}

func (s *stream) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := s.watch(ctx)
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			s.gap(fmt.Sprintf("%T after revision %s: %v", s.list(), s.revision, err))
			err = s.relist(ctx)
		}
		if err != nil {
			pause(ctx)
		}
	}
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(retryDelay):
	}
}

// relist records how the listed objects differ from what is on record.
func (s *stream) relist(ctx context.Context) error {
	objects, revision, err := s.objects(ctx)
	if err != nil {
		return err
	}
	listed := map[types.UID]bool{}
	for _, o := range objects {
		listed[o.GetUID()] = true
		known, ok := s.latest(o.GetUID())
		switch {
		case !ok:
			err = s.record(watch.Added, o, true)
		case known.Object.GetResourceVersion() != o.GetResourceVersion():
			err = s.record(watch.Modified, o, true)
		}
		if err != nil {
			return err
		}
	}
	for uid, v := range s.snapshot() {
		if listed[uid] {
			continue
		}
		last := v.Object.DeepCopyObject().(client.Object)
		last.SetResourceVersion(revision)
		if err := s.record(watch.Deleted, last, true); err != nil {
			return err
		}
	}
	s.revision = revision
	return nil
}

// patience is how often a page is asked for again: a busy API server does not always answer in time.
var patience = wait.Backoff{Steps: 6, Duration: time.Second, Factor: 2}

// pageSize is how many objects are asked for at once. When the API server's cache is behind, it reads a page from etcd
// in one answer; on a busy machine that of thousands of pods takes longer than a request may.
const pageSize = 250

// objects lists all objects, as they were at the returned revision.
func (s *stream) objects(ctx context.Context) (objects []client.Object, revision string, err error) {
	pages := pager.New(s.page)
	pages.PageSize = pageSize
	list, _, err := pages.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, "", fmt.Errorf("listing %T: %w", s.list(), err)
	}
	about, err := meta.ListAccessor(list)
	if err != nil {
		return nil, "", fmt.Errorf("reading %T: %w", list, err)
	}
	err = meta.EachListItem(list, func(o runtime.Object) error {
		objects = append(objects, o.(client.Object))
		return nil
	})
	return objects, about.GetResourceVersion(), err
}

func (s *stream) page(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list := s.list()
	busy := func(err error) bool {
		return ctx.Err() == nil && (apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err))
	}
	err := retry.OnError(patience, busy, func() error {
		return s.client.List(ctx, list, &client.ListOptions{Limit: options.Limit, Continue: options.Continue})
	})
	return list, err
}

// watch records until the watch ends. A nil error means that it can be resumed at once.
func (s *stream) watch(ctx context.Context) error {
	w, err := s.client.Watch(ctx, s.list(), &client.ListOptions{Raw: &metav1.ListOptions{
		ResourceVersion:     s.revision,
		AllowWatchBookmarks: true,
	}})
	if err != nil {
		return fmt.Errorf("watching %T: %w", s.list(), err)
	}
	defer w.Stop()
	s.setWatching(true)
	defer s.setWatching(false)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, open := <-w.ResultChan():
			if !open {
				return nil
			}
			if err := s.take(event); err != nil {
				return err
			}
		}
	}
}

func (s *stream) setWatching(open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watching = open
}

func (s *stream) take(event watch.Event) error {
	if event.Type == watch.Error {
		return apierrors.FromObject(event.Object)
	}
	o := event.Object.(client.Object)
	if event.Type != watch.Bookmark {
		if err := s.record(event.Type, o, false); err != nil {
			return err
		}
	}
	s.revision = o.GetResourceVersion()
	return nil
}

func (s *stream) record(t watch.EventType, o client.Object, inferred bool) error {
	v, err := newVersion(t, o, inferred)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t == watch.Deleted {
		delete(s.live, o.GetUID())
	} else {
		s.live[o.GetUID()] = v
	}
	s.last = max(s.last, v.Revision)
	s.recorded++
	s.add(v)
	return nil
}

func (s *stream) latest(uid types.UID) (Version, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.live[uid]
	return v, ok
}

func (s *stream) snapshot() map[types.UID]Version {
	s.mu.Lock()
	defer s.mu.Unlock()
	copied := make(map[types.UID]Version, len(s.live))
	for uid, v := range s.live {
		copied[uid] = v
	}
	return copied
}

// sync waits until the record has every version that a list made now returns, and no object that
// this list no longer has.
func (s *stream) sync(ctx context.Context) error {
	objects, listed, err := s.objects(ctx)
	if err != nil {
		return err
	}
	target := make(map[types.UID]Version, len(objects))
	for _, o := range objects {
		v, err := newVersion(watch.Modified, o, false)
		if err != nil {
			return err
		}
		target[o.GetUID()] = v
	}
	revision, err := parseRevision(listed)
	if err != nil {
		return err
	}
	for !s.reached(target, revision) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%T is behind revision %d: %w", s.list(), revision, ctx.Err())
		case <-time.After(syncPoll):
		}
	}
	return nil
}

// reached tells whether the record is at least as new as the listed objects. Writes arrive in order,
// so one later than the list settles it; without any, the objects themselves must agree.
func (s *stream) reached(listed map[types.UID]Version, revision uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last >= revision {
		return true
	}
	for uid, want := range listed {
		if have, ok := s.live[uid]; !ok || have.Revision < want.Revision {
			return false
		}
	}
	return len(s.live) == len(listed)
}
