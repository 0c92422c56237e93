package replay

import (
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Outcome is what became of one job.
type Outcome struct {
	Asked    time.Time // the API server was asked to create its Pod
	Bound    time.Time // its Pod got a node for the first time
	Running  time.Time // its Pod ran for the first time
	Deleted  time.Time // its work was done and its Pod deleted
	Attempts int       // Pods created for it
	Node     string    // of the latest Pod
}

// Wait is the time from asking to the binding; ok is false when it was never bound.
func (o Outcome) Wait() (wait time.Duration, ok bool) { return o.Bound.Sub(o.Asked), !o.Bound.IsZero() }

// Start is the time from asking to running; ok is false when it never ran.
func (o Outcome) Start() (wait time.Duration, ok bool) {
	return o.Running.Sub(o.Asked), !o.Running.IsZero()
}

// change is what a watch event means for a job.
type change struct {
	job     int
	started bool // runs for the first time
	lost    bool // its Pod is gone though its work is not done
}

// Tracker measures the jobs of a run.
type Tracker struct {
	mu       sync.Mutex
	outcomes []Outcome
}

// NewTracker makes a tracker for so many jobs.
func NewTracker(jobs int) *Tracker { return &Tracker{outcomes: make([]Outcome, jobs)} }

// Outcomes is a copy of all outcomes, in the order of the plan.
func (t *Tracker) Outcomes() []Outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Outcome(nil), t.outcomes...)
}

// asked notes an attempt; the wait counts from the first.
func (t *Tracker) asked(job int, now time.Time) (attempt int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := &t.outcomes[job]
	if o.Attempts == 0 {
		o.Asked = now
	}
	o.Attempts++
	return o.Attempts - 1
}

// done notes the end of a job's work, before its Pod is deleted, and gives its latest attempt.
func (t *Tracker) done(job int, now time.Time) (attempt int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := &t.outcomes[job]
	o.Deleted = now
	return max(0, o.Attempts-1)
}

// finished says that a job's work is done.
func (t *Tracker) finished(job int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.outcomes[job].Deleted.IsZero()
}

// allStarted says that every job has run.
func (t *Tracker) allStarted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.outcomes {
		if t.outcomes[i].Running.IsZero() {
			return false
		}
	}
	return true
}

// Counts are how many jobs were asked for, have run, and are done.
func (t *Tracker) Counts() (asked, ran, done int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range t.outcomes {
		asked += one(o.Attempts > 0)
		ran += one(!o.Running.IsZero())
		done += one(!o.Deleted.IsZero())
	}
	return asked, ran, done
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// observe takes a watch event of a Pod; ok is false when it means nothing for a job.
func (t *Tracker) observe(before, after *corev1.Pod, now time.Time) (c change, ok bool) {
	pod := after
	if pod == nil {
		pod = before
	}
	job, err := strconv.Atoi(pod.Labels[jobLabel])
	if err != nil || job < 0 || job >= len(t.outcomes) || pod.Labels[appLabel] != appName {
		return change{}, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	o := &t.outcomes[job]
	c.job = job
	if after == nil {
		c.lost = o.Deleted.IsZero()
		return c, c.lost
	}
	if after.Spec.NodeName != "" {
		o.Node = after.Spec.NodeName
		if o.Bound.IsZero() {
			o.Bound = now
		}
	}
	if after.Status.Phase == corev1.PodRunning && o.Running.IsZero() {
		o.Running, c.started = now, true
	}
	return c, c.started
}
