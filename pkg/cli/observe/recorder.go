package observe

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// maxSamples bounds the series: at two samples a second, about fourteen hours.
const maxSamples = 100_000

// Recorder watches a cluster and keeps its history.
type Recorder struct {
	clock   clock.WithTicker
	every   time.Duration
	store   *store
	typed   informers.SharedInformerFactory
	untyped dynamicinformer.DynamicSharedInformerFactory
	onPod   func(before, after *corev1.Pod)

	mu      sync.Mutex
	series  Series
	marks   []Mark
	updated chan struct{} // closed and replaced at every sample
}

// Options are a Recorder's settings.
type Options struct {
	Every time.Duration // between samples; default 500ms
	Clock clock.WithTicker
	// OnPod is called for every change of a pod, from one goroutine; before is nil for a new pod, after is nil for a deleted one.
	OnPod func(before, after *corev1.Pod)
}

// New makes a recorder of the cluster that config reaches; Run starts it.
func New(config *rest.Config, o Options) (*Recorder, error) {
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making client: %w", err)
	}
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making dynamic client: %w", err)
	}
	return NewFor(typed, untyped, o)
}

// NewFor makes a recorder that watches through these clients.
func NewFor(typed kubernetes.Interface, untyped dynamic.Interface, o Options) (*Recorder, error) {
	if o.Every == 0 {
		o.Every = 500 * time.Millisecond
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.OnPod == nil {
		o.OnPod = func(_, _ *corev1.Pod) {}
	}
	r := &Recorder{
		clock: o.Clock, every: o.Every, store: newStore(), updated: make(chan struct{}), onPod: o.OnPod,
		typed:   informers.NewSharedInformerFactory(typed, 0),
		untyped: dynamicinformer.NewDynamicSharedInformerFactory(untyped, 0),
	}
	return r, r.subscribe()
}

func (r *Recorder) subscribe() error {
	for _, s := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{r.untyped.ForResource(NodeClaims).Informer(), r.claimHandler()},
		{r.untyped.ForResource(RTNodes).Informer(), r.rtNodeHandler()},
		{r.untyped.ForResource(McKubes).Informer(), r.mckubeHandler()},
		{r.typed.Core().V1().Nodes().Informer(), r.nodeHandler()},
		{r.typed.Core().V1().Pods().Informer(), r.podHandler()},
		{r.typed.Core().V1().Events().Informer(), r.eventHandler()},
	} {
		if err := s.informer.SetTransform(withoutManagedFields); err != nil {
			return fmt.Errorf("preparing watch: %w", err)
		}
		if _, err := s.informer.AddEventHandler(s.handler); err != nil {
			return fmt.Errorf("preparing watch: %w", err)
		}
	}
	return nil
}

// Run watches and samples until the context ends; it returns once nothing of it runs any more. ready is closed when the
// first state is complete.
func (r *Recorder) Run(ctx context.Context, ready chan<- struct{}) error {
	defer r.typed.Shutdown()
	defer r.untyped.Shutdown()
	r.untyped.Start(ctx.Done())
	r.typed.StartWithContext(ctx)
	for kind, ok := range r.typed.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return fmt.Errorf("watching %s: %w", kind, context.Cause(ctx))
		}
	}
	for resource, ok := range r.untyped.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return fmt.Errorf("watching %s: %w", resource.Resource, context.Cause(ctx))
		}
	}
	r.sample()
	close(ready)
	ticker := r.clock.NewTicker(r.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			r.sample()
			return nil
		case <-ticker.C():
			r.sample()
		}
	}
}

func (r *Recorder) sample() {
	sample := SampleOf(r.State())
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.series) < maxSamples {
		r.series = append(r.series, sample)
	}
	close(r.updated)
	r.updated = make(chan struct{})
}

// State is the cluster now.
func (r *Recorder) State() State { return r.store.state(r.clock.Now()) }

// Series is what was sampled so far.
func (r *Recorder) Series() Series {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(Series(nil), r.series...)
}

// Decisions are the newest n decisions, oldest first.
func (r *Recorder) Decisions(n int) []Decision {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	return r.store.journal.last(n)
}

// Tell adds a decision of the caller's own.
func (r *Recorder) Tell(d Decision) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	r.store.journal.add(d)
}

// Mark remembers this moment under a label.
func (r *Recorder) Mark(label string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.marks = append(r.marks, Mark{At: r.clock.Now(), Label: label})
}

// Marks are the moments marked so far.
func (r *Recorder) Marks() []Mark {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Mark(nil), r.marks...)
}

// ResetPeaks starts State.PeakDisrupted anew.
func (r *Recorder) ResetPeaks() { r.store.resetPeaks() }

// Until waits until holds is true of the state, looking at every sample. It returns the context's error when that ends
// first.
func (r *Recorder) Until(ctx context.Context, holds func(State) bool) error {
	for {
		r.mu.Lock()
		updated := r.updated
		r.mu.Unlock()
		if holds(r.State()) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-updated:
		}
	}
}
