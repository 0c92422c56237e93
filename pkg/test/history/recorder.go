package history

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

const (
	// retryDelay is the pause after a list or watch that failed, as while the API server is away.
	retryDelay = 100 * time.Millisecond
	// syncPoll is how often Sync looks whether the record has caught up.
	syncPoll = 20 * time.Millisecond
)

// Recorder watches a cluster from Start to Stop.
type Recorder struct {
	streams []*stream
	kinds   map[schema.GroupVersionKind]*stream
	cancel  context.CancelFunc
	done    sync.WaitGroup

	began uint64 // the revision of the first state

	mu       sync.Mutex
	versions []Version
	gaps     []string
}

// recorded lists the kinds on record. Leases and the like, which are written without end and tell
// nothing, are not.
func recorded() []func() client.ObjectList {
	return []func() client.ObjectList{
		func() client.ObjectList { return &corev1.NodeList{} },
		func() client.ObjectList { return &karpenterv1.NodeClaimList{} },
		func() client.ObjectList { return &corev1.PodList{} },
		func() client.ObjectList { return &corev1.EventList{} },
		func() client.ObjectList { return &mckubev1alpha1.RTNodeList{} },
		func() client.ObjectList { return &mckubev1alpha1.RTActionList{} },
		func() client.ObjectList { return &mckubev1alpha1.PodMigrationList{} },
		func() client.ObjectList { return &mcoperatorv1.McKubeList{} },
		func() client.ObjectList { return &resourcev1.ResourceClaimList{} },
		func() client.ObjectList { return &resourcev1.ResourceSliceList{} },
	}
}

// Start begins to record. It returns once the first state of every kind is on record, so nothing
// that happens later is missed.
func Start(ctx context.Context, c client.WithWatch) (*Recorder, error) {
	r := &Recorder{kinds: map[schema.GroupVersionKind]*stream{}}
	for _, list := range recorded() {
		kind, err := KindOf(c, list())
		if err != nil {
			return nil, err
		}
		s := newStream(c, list, r.add, r.gap)
		r.streams, r.kinds[kind] = append(r.streams, s), s
	}
	for _, s := range r.streams {
		if err := s.relist(ctx); err != nil {
			return nil, fmt.Errorf("recording the first state: %w", err)
		}
		r.began = max(r.began, s.last)
	}
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for _, s := range r.streams {
		r.done.Go(func() { s.run(ctx) })
	}
	return r, nil
}

// Stop ends the record and waits for its watches to end.
func (r *Recorder) Stop() {
	r.cancel()
	r.done.Wait()
}

// Sync waits until the record holds everything that the API server had written when Sync was called.
func (r *Recorder) Sync(ctx context.Context) error {
	for _, s := range r.streams {
		if err := s.sync(ctx); err != nil {
			return fmt.Errorf("waiting for the record to catch up: %w", err)
		}
	}
	return nil
}

// History returns what has been written since Start, oldest first, as far as it is on record. What was
// there at Start is its first state.
func (r *Recorder) History() History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return newHistory(r.versions).Since(r.began)
}

// Live are the objects of a kind as they are on record now, which is a moment behind the API server. They are shared:
// nobody changes them.
func Live[T client.Object](r *Recorder) []T {
	var out []T
	for _, s := range r.streams {
		for _, v := range s.snapshot() {
			o, ok := v.Object.(T)
			if !ok { // a stream has one kind
				break
			}
			out = append(out, o)
		}
	}
	return out
}

// Gaps describes the intervals in which a watch was lost and could not be resumed, so that versions
// may be missing. It is empty unless the API server was away.
func (r *Recorder) Gaps() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.gaps)
}

func (r *Recorder) add(v Version) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.versions = append(r.versions, v)
}

func (r *Recorder) gap(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gaps = append(r.gaps, what)
}
