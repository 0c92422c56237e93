package replay

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
)

const (
	// workers bounds how many requests of a run are under way at once.
	workers = 16
	// requestTimeout bounds one request.
	requestTimeout = 30 * time.Second
	// look is how often a run looks whether it is over.
	look = 250 * time.Millisecond
)

// Runner creates and deletes the Pods of a plan at their times. It stands in for what owned the pods in the trace: a Pod
// that is evicted before its work is done is created again.
type Runner struct {
	Client    kubernetes.Interface
	Clock     clock.WithTicker
	Namespace string
	Jobs      []Job
	Tracker   *Tracker
	Settle    time.Duration // how long after the last creation pods may still wait before the run ends

	agenda *agenda
	// underWay counts requests that were dispatched and have not ended.
	underWay atomic.Int64
}

// Prepare must be called before Observe and Run.
func (r *Runner) Prepare() { r.agenda = newAgenda() }

// Observe takes a change of a Pod from a watch.
func (r *Runner) Observe(before, after *corev1.Pod) {
	now := r.Clock.Now()
	c, ok := r.Tracker.observe(before, after, now)
	if !ok {
		return
	}
	if c.started {
		r.agenda.add(task{at: now.Add(r.Jobs[c.job].Work), job: c.job, finish: true})
	}
	if c.lost {
		r.agenda.add(task{at: now, job: c.job})
	}
}

// Run plays the plan. It returns when every job has started, or when Settle has passed since the last was created, or
// when the context ends.
func (r *Runner) Run(ctx context.Context) error {
	start := r.Clock.Now()
	for i, j := range r.Jobs {
		r.agenda.add(task{at: start.Add(j.At), job: i})
	}
	var last time.Time
	if len(r.Jobs) > 0 {
		last = start.Add(r.Jobs[len(r.Jobs)-1].At)
	}
	tasks := make(chan task)
	group, ctx := errgroup.WithContext(ctx)
	for range workers {
		group.Go(func() error { return r.work(ctx, tasks) })
	}
	group.Go(func() error {
		defer close(tasks)
		return r.dispatch(ctx, last.Add(r.Settle), tasks)
	})
	return group.Wait()
}

func (r *Runner) dispatch(ctx context.Context, end time.Time, tasks chan<- task) error {
	for {
		now := r.Clock.Now()
		if r.over(now, end) {
			return nil
		}
		t, ok, wait := r.agenda.due(now, look)
		if ok {
			r.underWay.Add(1)
			select {
			case tasks <- t:
				continue
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		timer := r.Clock.NewTimer(wait)
		select {
		case <-timer.C():
		case <-r.agenda.added:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		timer.Stop()
	}
}

// over says that every job has started, or that the time is up.
func (r *Runner) over(now, end time.Time) bool {
	if now.After(end) {
		return true
	}
	return r.Tracker.allStarted()
}

func (r *Runner) work(ctx context.Context, tasks <-chan task) error {
	for t := range tasks {
		act := r.create
		if t.finish {
			act = r.finish
		}
		err := act(ctx, t.job)
		r.underWay.Add(-1)
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Runner) create(ctx context.Context, job int) error {
	if r.Tracker.finished(job) {
		return nil
	}
	attempt := r.Tracker.asked(job, r.Clock.Now())
	pod := Manifest(r.Jobs[job], r.Namespace, job, attempt)
	err := r.try(ctx, func(ctx context.Context) error {
		_, err := r.Client.CoreV1().Pods(r.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	// A retried request may have succeeded the first time.
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating pod %s: %w", pod.Name, err)
	}
	return nil
}

func (r *Runner) finish(ctx context.Context, job int) error {
	attempt := r.Tracker.done(job, r.Clock.Now())
	name := podName(r.Jobs[job].Name, job, attempt)
	now := int64(0)
	err := r.try(ctx, func(ctx context.Context) error {
		return r.Client.CoreV1().Pods(r.Namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting pod %s: %w", name, err)
	}
	return nil
}

// try repeats a request a few times when the server could not take it.
func (r *Runner) try(ctx context.Context, request func(context.Context) error) error {
	again := func(err error) bool {
		return ctx.Err() == nil && (apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
			apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err))
	}
	return retry.OnError(retry.DefaultBackoff, again, func() error {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		return request(ctx)
	})
}
