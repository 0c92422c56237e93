package replay

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/cli/kube"
	"github.com/mainspring-rt/mainspring/pkg/cli/observe"
	"github.com/mainspring-rt/mainspring/pkg/cli/view"
)

// namespace is where the pods of a replay run.
const namespace = "replay"

// Session is one replay on one cluster.
type Session struct {
	Recorder *observe.Recorder

	prepared Prepared
	runner   *Runner
	objects  client.Client
	clock    clock.WithTicker

	mu         sync.Mutex
	start, end time.Time
}

// NewSession makes a session on a cluster.
func NewSession(config *rest.Config, objects client.Client, clk clock.WithTicker, p Prepared, settle time.Duration) (*Session, error) {
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making client: %w", err)
	}
	runner := &Runner{Client: typed, Clock: clk, Namespace: namespace, Jobs: p.Jobs, Tracker: NewTracker(len(p.Jobs)), Settle: settle}
	runner.Prepare()
	recorder, err := observe.New(config, observe.Options{Clock: clk, OnPod: runner.Observe})
	if err != nil {
		return nil, err
	}
	return &Session{Recorder: recorder, prepared: p, runner: runner, objects: objects, clock: clk, start: clk.Now()}, nil
}

// Perform makes the pools, waits until they are ready, and runs the replay.
func (s *Session) Perform(ctx context.Context) error {
	if err := kube.Apply(ctx, s.objects, s.prepared.Pools...); err != nil {
		return err
	}
	if err := kube.AwaitPools(ctx, s.objects, s.clock, s.prepared.Pools...); err != nil {
		return err
	}
	_, err := s.runner.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("making namespace: %w", err)
	}
	s.mu.Lock()
	s.start = s.clock.Now()
	s.mu.Unlock()
	err = s.runner.Run(ctx)
	s.mu.Lock()
	s.end = s.clock.Now()
	s.mu.Unlock()
	return err
}

func (s *Session) span() (start, end time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.start, s.end
}

// decisionsShown is how many decisions a frame carries, decisionsKept how many are searched for reasons.
const (
	decisionsShown = 40
	decisionsKept  = 5000
)

// Frame is what the view shows now. Money and energy are in trace time.
func (s *Session) Frame() view.Frame {
	start, _ := s.span()
	speed := s.prepared.Input.Speed
	series := s.Recorder.Series()
	asked, ran, done := s.runner.Tracker.Counts()
	elapsed := s.clock.Since(start)
	return view.Frame{
		Title:   fmt.Sprintf("replay of %s at %g times its speed", s.prepared.Input.Pods, speed),
		Elapsed: elapsed, State: s.Recorder.State(), Dollars: series.Dollars() * speed, KWh: series.KWh() * speed,
		Decisions: s.Recorder.Decisions(decisionsShown),
		Progress: view.Progress{
			Done: asked, Total: len(s.prepared.Jobs),
			Words: fmt.Sprintf("pods created, %d started, %d done; %.2f days of the trace", ran, done, elapsed.Hours()*speed/24),
		},
	}
}

// Finish gives the figures and the record of a run that has ended.
func (s *Session) Finish() (Summary, Record) {
	start, end := s.span()
	record := Record{
		Jobs: s.prepared.Jobs, Outcomes: s.runner.Tracker.Outcomes(), Series: s.Recorder.Series().Between(start, end),
		Machines: s.Recorder.Machines(), Start: start, End: end, Speed: s.prepared.Input.Speed,
	}
	summary := Figures(record)
	summary.Input, summary.Fit = s.prepared.Input, s.prepared.Fit
	explain(summary.Run.NeverStarted, s.prepared.Jobs, s.Recorder.Decisions(decisionsKept))
	return summary, record
}

// explain fills in why pods never started, from the last Event of each that told it.
func explain(never []Misfit, jobs []Job, decisions []observe.Decision) {
	reasons := map[string]string{}
	for _, d := range decisions {
		reasons[d.Node] = d.Text
	}
	number := map[string]int{}
	for i, j := range jobs {
		number[j.Name] = i
	}
	for i, m := range never {
		never[i].Why = reasons[podName(m.Pod, number[m.Pod], 0)]
		if never[i].Why == "" {
			never[i].Why = "no Event told why before the run ended"
		}
	}
}
