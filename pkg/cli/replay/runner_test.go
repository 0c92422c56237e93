package replay_test

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/mainspring-rt/mainspring/pkg/cli/replay"
	"github.com/mainspring-rt/mainspring/pkg/cli/trace"
)

// rig is a runner on an API without a cluster behind it: what would happen to a Pod is told by after.
type rig struct {
	runner  *replay.Runner
	clock   *testingclock.FakeClock
	created chan *corev1.Pod
	deleted chan string
}

func newRig(jobs []replay.Job, after func(r *rig, pod *corev1.Pod)) *rig {
	client := fake.NewClientset()
	r := &rig{clock: testingclock.NewFakeClock(start), created: make(chan *corev1.Pod, 100), deleted: make(chan string, 100)}
	r.runner = &replay.Runner{
		Client: client, Clock: r.clock, Namespace: "ns", Jobs: jobs, Tracker: replay.NewTracker(len(jobs)), Settle: time.Minute,
	}
	r.runner.Prepare()
	client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, apiruntime.Object, error) {
		pod := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
		r.created <- pod
		after(r, pod)
		return false, nil, nil
	})
	client.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, apiruntime.Object, error) {
		r.deleted <- a.(clienttesting.DeleteAction).GetName()
		return false, nil, nil
	})
	return r
}

// run steps the clock until the run is over, and not while a request is under way: time does not pass for those.
func (r *rig) run(t *testing.T) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- r.runner.Run(context.Background()) }()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		select {
		case err := <-done:
			return err
		default:
			if r.clock.HasWaiters() && replay.UnderWay(r.runner) == 0 {
				r.clock.Step(100 * time.Millisecond)
			}
			runtime.Gosched()
		}
	}
	t.Fatal("the run does not end")
	return nil
}

func runs(r *rig, pod *corev1.Pod) {
	bound := pod.DeepCopy()
	bound.Spec.NodeName = "n"
	bound.Status.Phase = corev1.PodRunning
	r.runner.Observe(pod, bound)
}

func jobsAt(work time.Duration, at ...time.Duration) []replay.Job {
	var jobs []replay.Job
	for i, a := range at {
		jobs = append(jobs, replay.Job{Pod: trace.Pod{Name: string(rune('a' + i))}, At: a, Work: work})
	}
	return jobs
}

func TestRunnerCreatesPodsInTimeAndDeletesThemAfterTheirWork(t *testing.T) {
	t.Parallel()
	r := newRig(jobsAt(time.Second, 0, 2*time.Second, time.Minute), runs)
	if err := r.run(t); err != nil {
		t.Fatal(err)
	}
	asked, ran, done := r.runner.Tracker.Counts()
	if asked != 3 || ran != 3 || len(r.created) != 3 || len(r.deleted) != done {
		t.Errorf("asked %d, ran %d, created %d, done %d, deleted %d", asked, ran, len(r.created), done, len(r.deleted))
	}
	for i, o := range r.runner.Tracker.Outcomes() {
		if o.Asked.Before(start.Add(r.runner.Jobs[i].At)) {
			t.Errorf("job %d was asked for at %v, want not before %v", i, o.Asked.Sub(start), r.runner.Jobs[i].At)
		}
		if !o.Deleted.IsZero() && o.Deleted.Before(o.Running.Add(r.runner.Jobs[i].Work)) {
			t.Errorf("job %d was deleted before its work was done: %+v", i, o)
		}
	}
}

func TestRunnerStandsInForTheOwner(t *testing.T) {
	t.Parallel()
	r := newRig(jobsAt(time.Hour, 0, 20*time.Second), func(r *rig, pod *corev1.Pod) {
		runs(r, pod)
		if pod.Name == "a" {
			r.runner.Observe(pod, nil) // evicted at once
		}
	})
	if err := r.run(t); err != nil {
		t.Fatal(err)
	}
	var names []string
	for range len(r.created) {
		names = append(names, (<-r.created).Name)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"a", "a-again-1", "b"}) {
		t.Errorf("created %v", names)
	}
}

func TestRunnerGivesUpOnPodsThatNeverStart(t *testing.T) {
	t.Parallel()
	r := newRig(jobsAt(time.Second, 0, time.Second), func(*rig, *corev1.Pod) {})
	if err := r.run(t); err != nil {
		t.Fatal(err)
	}
	if waited := r.clock.Since(start); waited < time.Minute {
		t.Errorf("it gave up after %v, want Settle", waited)
	}
}

func TestRunnerEndsOnARefusal(t *testing.T) {
	t.Parallel()
	r := newRig(jobsAt(time.Second, 0), runs)
	r.runner.Client.(*fake.Clientset).PrependReactor("create", "pods", func(clienttesting.Action) (bool, apiruntime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "a", nil)
	})
	err := r.run(t)
	if err == nil || !apierrors.IsForbidden(err) || meta.IsNoMatchError(err) {
		t.Errorf("got %v", err)
	}
}

func TestRunnerEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r := newRig(jobsAt(time.Second, time.Hour), runs)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.runner.Run(ctx); err == nil {
		t.Errorf("it ended well")
	}
}
