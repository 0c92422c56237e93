package disruption_test

import (
	"context"
	"testing"
	"time"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpdisruption "sigs.k8s.io/karpenter/pkg/controllers/disruption"
	karpstate "sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/mainspring-rt/mainspring/pkg/controllers/disruption"
)

// remembering searches in vain, and not again while the cluster is not marked, as Karpenter's consolidation does.
type remembering struct {
	karpdisruption.Method
	cluster  *karpstate.Cluster
	last     time.Time
	searches int
}

func (*remembering) Reason() karpv1.DisruptionReason { return karpv1.DisruptionReasonUnderutilized }

func (*remembering) ConsolidationType() string { return "single" }

func (r *remembering) ComputeCommands(context.Context, map[string]int, ...*karpdisruption.Candidate) ([]karpdisruption.Command, error) {
	if !r.last.Equal(r.cluster.ConsolidationState()) {
		r.searches++
		r.last = r.cluster.ConsolidationState()
	}
	return nil, nil
}

// A node that becomes a candidate is looked at, though nothing has marked the cluster.
func TestANewCandidateIsLookedAt(t *testing.T) {
	w := begin(t)
	a, b := w.node("a", "plain").Name, w.node("b", "plain").Name
	search := &remembering{cluster: w.cluster}
	method := disruption.NewFiltered(w.dependencies, search, search)
	for i, pass := range []struct {
		candidates []string
		want       int
	}{
		{[]string{a}, 1}, {[]string{a}, 1}, {[]string{a, b}, 2}, {[]string{a, b}, 2}, {[]string{b}, 2}, {[]string{a, b}, 3},
		{nil, 3}, {[]string{a, b}, 4}, {[]string{a, b}, 4},
	} {
		w.clock.Step(time.Second)
		var candidates []*karpdisruption.Candidate
		for _, name := range pass.candidates {
			candidates = append(candidates, w.candidate(name))
		}
		if len(candidates) > 0 {
			if _, err := method.ComputeCommands(w.ctx, nil, candidates...); err != nil {
				t.Fatal(err)
			}
		}
		disruption.EndPass(method)
		if search.searches != pass.want {
			t.Errorf("pass %d, with candidates %v: %d searches, want %d", i, pass.candidates, search.searches, pass.want)
		}
	}
}

// publishing does something when an Event is published.
type publishing struct {
	events.Recorder
	do func()
}

func (p publishing) Publish(list ...events.Event) {
	p.do()
	p.Recorder.Publish(list...)
}

// What changes while consolidation looks at the nodes is not taken for seen.
func TestAChangeDuringAPassIsLookedAt(t *testing.T) {
	w := begin(t)
	w.node("a", "plain")
	w.pod("pod-a", "a", 0)
	w.sync()
	do := func() {}
	d := w.dependencies
	d.Recorder = publishing{d.Recorder, func() { do() }} // why the node is no candidate: its NodePool does not consolidate
	w.loop = disruption.NewController(w.ctx, d)
	pass := func() time.Time {
		w.clock.Step(time.Second)
		if _, err := w.loop.Reconcile(w.ctx); err != nil {
			t.Fatal(err)
		}
		return w.cluster.ConsolidationState()
	}
	pass()
	if first, second := pass(), pass(); !first.Equal(second) {
		t.Fatalf("a pass in which nothing changes marks the cluster: %s, before %s", second, first)
	}
	var marked time.Time
	do = func() {
		marked = w.cluster.MarkUnconsolidated()
		w.clock.Step(time.Second)
		do = func() {}
	}
	if seen := pass(); marked.IsZero() || !seen.After(marked) {
		t.Errorf("the cluster changed at %s, and consolidation has seen it as it was at %s", marked, seen)
	}
}
