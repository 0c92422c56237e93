package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test"
)

const (
	// benchAgent is how the bench calls itself at the API server.
	benchAgent = "bench-migration"
	// callers ask side by side.
	callers = 16
	// idle is for how long the controller's requests are counted while nothing is to be done.
	idle = 20 * time.Second
)

// measured is what a round took. Times are in seconds.
type measured struct {
	unavailable, wholes, decisions []float64
	asked, moved, concurrent       int
	calls                          float64 // a migration
}

// measure moves all pods at once.
func (w *world) measure(ctx context.Context, r round) (m measured, err error) {
	fmt.Fprintf(os.Stderr, "round %s\n", r.name)
	pods, err := w.list(ctx)
	if err != nil {
		return m, err
	}
	quiet, err := w.requests(ctx, idle)
	if err != nil {
		return m, err
	}
	before := w.auditSize()
	see, err := w.observe(ctx, r, pods)
	if err != nil {
		return m, err
	}
	began := time.Now()
	if err := w.ask(ctx, r, pods, see); err != nil {
		return m, errors.Join(err, see.stop())
	}
	waited := w.await(ctx, "pods that have moved", func(ctx context.Context) (bool, string, error) {
		over, moved := see.state(r)
		return over == len(pods), fmt.Sprintf("%d of %d are over, %d have moved", over, len(pods), moved), nil
	})
	took := time.Since(began)
	m = see.result(r)
	if err := errors.Join(waited, see.stop()); err != nil {
		return m, err
	}
	if err := sleep(ctx, flushed); err != nil {
		return m, err
	}
	asked, err := w.count(before)
	asked.print(os.Stderr, len(pods))
	m.calls = (float64(asked.sum()) - quiet*(took+flushed).Seconds()) / float64(len(pods))
	return m, err
}

// ask has all pods moved.
func (w *world) ask(ctx context.Context, r round, pods []corev1.Pod, see *observer) error {
	if r.strategy == "" {
		return w.drain(ctx, pods, see)
	}
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(callers)
	for i := range pods {
		all.Go(func() error {
			p := &pods[i]
			see.begin(p)
			o := test.PodMigration(r.name+"-"+p.Labels[test.Label], p, test.By(r.strategy))
			if err := w.client.Create(ctx, o); err != nil {
				return fmt.Errorf("creating PodMigration %s: %w", o.Name, err)
			}
			return nil
		})
	}
	return all.Wait()
}

// drain evicts all pods, with nothing between them and the Eviction API. Nodes are not cordoned: all of them are left at once.
func (w *world) drain(ctx context.Context, pods []corev1.Pod, see *observer) error {
	gates := &admissionv1.ValidatingWebhookConfigurationList{}
	if err := w.client.List(ctx, gates); err != nil {
		return fmt.Errorf("listing webhooks: %w", err)
	}
	for i := range gates.Items {
		if err := w.client.Delete(ctx, &gates.Items[i]); err != nil {
			return fmt.Errorf("deleting webhook configuration %s: %w", gates.Items[i].Name, err)
		}
	}
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(callers)
	for i := range pods {
		all.Go(func() error {
			p := &pods[i]
			see.begin(p)
			if err := w.client.SubResource("eviction").Create(ctx, p, &policyv1.Eviction{}); err != nil {
				return fmt.Errorf("evicting pod %s: %w", p.Name, err)
			}
			return nil
		})
	}
	return all.Wait()
}

// watched is one workload during a round.
type watched struct {
	source      types.UID
	from        string
	ready       map[types.UID]string // pods that serve, and their nodes
	since       time.Time            // no pod serves; zero while one does
	away        time.Duration
	asked, over time.Time
	decided     time.Time
	phase       v1alpha1.MigrationPhase
}

// observer watches pods and PodMigrations of a round, by informers, which ask again when the API server ends a watch. Times are those at
// which they told.
type observer struct {
	round  string
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu         sync.Mutex
	workloads  map[string]*watched
	concurrent int
	failed     error
}

// observe begins to watch; the pods are those that are moved.
func (w *world) observe(ctx context.Context, r round, pods []corev1.Pod) (*observer, error) {
	o := &observer{round: r.name, workloads: map[string]*watched{}}
	for i := range pods {
		p := &pods[i]
		o.workloads[p.Labels[test.Label]] = &watched{source: p.UID, from: p.Spec.NodeName, ready: map[types.UID]string{p.UID: p.Spec.NodeName}}
	}
	told, err := cache.New(w.config, cache.Options{Scheme: w.client.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("building the watch: %w", err)
	}
	for _, object := range []client.Object{&corev1.Pod{}, &v1alpha1.PodMigration{}} {
		informer, err := told.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watching %T: %w", object, err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { o.see(object, false) },
			UpdateFunc: func(_, object any) { o.see(object, false) },
			DeleteFunc: func(object any) { o.see(object, true) },
		}); err != nil {
			return nil, fmt.Errorf("watching %T: %w", object, err)
		}
	}
	ctx, o.cancel = context.WithCancel(ctx)
	o.done.Go(func() { o.failed = told.Start(ctx) })
	if !told.WaitForCacheSync(ctx) {
		return nil, errors.Join(errors.New("the watch of pods and PodMigrations does not begin"), o.stop())
	}
	return o, nil
}

func (o *observer) stop() error {
	o.cancel()
	o.done.Wait()
	return o.failed
}

func (o *observer) begin(p *corev1.Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.workloads[p.Labels[test.Label]].asked = time.Now()
}

func (o *observer) see(object any, gone bool) {
	if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch object := object.(type) {
	case *corev1.Pod:
		if w := o.workloads[object.Labels[test.Label]]; w != nil {
			w.pod(object, gone)
		}
	case *v1alpha1.PodMigration:
		name, ours := strings.CutPrefix(object.Name, o.round+"-")
		if w := o.workloads[name]; w != nil && ours {
			w.migration(object)
		}
		o.concurrent = max(o.concurrent, o.underWay())
	}
}

func (o *observer) underWay() (n int) {
	for _, w := range o.workloads {
		if w.phase != "" && w.phase != v1alpha1.MigrationPending && !w.phase.Over() {
			n++
		}
	}
	return n
}

// pod notes whether a pod of the workload serves.
func (w *watched) pod(p *corev1.Pod, gone bool) {
	if !gone && serves(p) {
		w.ready[p.UID] = p.Spec.NodeName
	} else {
		delete(w.ready, p.UID)
	}
	now := time.Now()
	switch {
	case len(w.ready) > 0 && !w.since.IsZero():
		w.away += now.Sub(w.since)
		w.since = time.Time{}
	case len(w.ready) == 0 && w.since.IsZero():
		w.since = now
	}
}

func (w *watched) migration(m *v1alpha1.PodMigration) {
	now := time.Now()
	w.phase = m.Status.Phase
	if w.decided.IsZero() && meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionMigrationAdmitted) {
		w.decided = now
	}
	if w.over.IsZero() && m.Status.Phase.Over() {
		w.over = now
		if m.Status.Phase != v1alpha1.MigrationSucceeded {
			fmt.Fprintf(os.Stderr, "  %s is %s: %s\n", m.Name, m.Status.Phase, m.Status.Message)
		}
	}
}

// state is how many workloads are done with, and how many of them have a pod elsewhere.
func (o *observer) state(r round) (over, moved int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range o.workloads {
		elsewhere := w.elsewhere()
		if r.strategy == "" && w.over.IsZero() && len(w.ready) > 0 && w.ready[w.source] == "" {
			w.over = time.Now()
		}
		if !w.over.IsZero() && len(w.ready) > 0 {
			over++
		}
		if elsewhere {
			moved++
		}
	}
	return over, moved
}

// elsewhere tells whether only pods on other nodes than before serve.
func (w *watched) elsewhere() bool {
	for _, node := range w.ready {
		if node == w.from {
			return false
		}
	}
	return len(w.ready) > 0
}

func (o *observer) result(r round) measured {
	_, moved := o.state(r)
	o.mu.Lock()
	defer o.mu.Unlock()
	m := measured{asked: len(o.workloads), moved: moved, concurrent: o.concurrent}
	for _, w := range o.workloads {
		m.unavailable = append(m.unavailable, w.away.Seconds())
		m.wholes = append(m.wholes, w.over.Sub(w.asked).Seconds())
		if !w.decided.IsZero() {
			m.decisions = append(m.decisions, w.decided.Sub(w.asked).Seconds())
		}
	}
	return m
}
