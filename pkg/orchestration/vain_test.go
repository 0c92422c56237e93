package orchestration_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// pressure goes on for a time: the same is asked for whenever it may be, and the cause is asked about once a minute. It tells the rests, and of how
// many attempts was known at most.
func (s *stage) pressure(p *process, r orchestration.Request, lasts time.Duration) (rests []time.Duration, most int) {
	s.Helper()
	for until := s.clock.Now().Add(lasts); s.clock.Now().Before(until); {
		if r.StartBy = (time.Time{}); s.nodes.disrupted[r.Node] != "" {
			r.StartBy = s.clock.Now().Add(2 * time.Second)
		}
		ticket := s.submit(p, r)
		for !ticket.Phase.Over() {
			s.turns(p, 1)
			ticket = s.submit(p, r)
		}
		rests = append(rests, ticket.Again.Sub(s.action(ticket.Name).Status.PhaseTime.Time))
		for s.clock.Now().Before(ticket.Again) {
			s.clock.Step(min(time.Minute, ticket.Again.Sub(s.clock.Now())))
			known, err := p.queue.ForCause(r.Cause)
			s.must(err)
			most = max(most, len(known))
		}
	}
	return rests, most
}

// A pressure that goes on for days, and against which nothing helps, is answered by attempts for days. Few of them are known at any time, on record or
// not, and each rests for as long as if all were.
func TestAttemptsInVainDoNotPileUp(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	s.conduct["NoCore"] = conduct{givesUp: true}
	p := s.spawn()
	s.turns(p, 1)
	r := s.request(rules.Preempt, "NoCore", "n1", s.pod("a1"))
	hours := sampling.Count(6, 72)
	rests, most := s.pressure(p, r, time.Duration(hours)*time.Hour)
	if len(rests) < 5*hours {
		t.Fatalf("only %d attempts in %d hours", len(rests), hours)
	}
	for i, got := range rests {
		if want := orchestration.RestAfter(int32(i + 1)); got != want {
			t.Errorf("attempt %d: a rest of %s, want %s", i+1, got, want)
		}
	}
	s.turns(p, 1)
	if stored := len(s.actions()); stored > orchestration.KeptAlike || most > orchestration.KeptAlike+1 {
		t.Errorf("of %d attempts %d are stored, and %d were known at once, want %d", len(rests), stored, most, orchestration.KeptAlike)
	}
	if got := s.archived(); got != "" {
		t.Errorf("stored as deleted by users: %s", got)
	}
	p = s.spawn()
	s.turns(p, 1)
	s.clock.Step(orchestration.RestMost)
	if next := s.submit(p, r); next.Attempt != int32(len(rests)+1) {
		t.Errorf("to the next leader it is attempt %d, after %d", next.Attempt, len(rests))
	}
}

// Nor do those that a disruption of the node kept from beginning. However many these were, no rest is longer for them, and none shorter than those make
// it that came to nothing before.
func TestKeptAttemptsDoNotPileUp(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	s.conduct["NoCore"] = conduct{givesUp: true}
	p := s.spawn()
	s.turns(p, 1)
	r := s.request(rules.Preempt, "NoCore", "n1", s.pod("a1"))
	for range 2 {
		s.pressure(p, r, time.Second)
	}
	s.nodes.disrupted["n1"] = "is being replaced"
	rests, most := s.pressure(p, r, time.Hour)
	if len(rests) < 2*orchestration.KeptAlike || slices.Min(rests) != orchestration.RestAfter(3) || slices.Max(rests) != orchestration.RestAfter(3) {
		t.Errorf("rests after two attempts in vain, while the node is disrupted: %v", rests)
	}
	if most > orchestration.KeptAlike+3 {
		t.Errorf("%d attempts were known at once", most)
	}
	delete(s.nodes.disrupted, "n1")
	for i := range int32(3) {
		if rests, _ := s.pressure(p, r, time.Second); rests[0] != orchestration.RestAfter(3+i) {
			t.Errorf("then rests of %v, want %s", rests, orchestration.RestAfter(3+i))
		}
	}
}

// Pods come and go while a pressure lasts, and with them what can be tried. Of actions that moved no pod, and were refused, the
// last are known, and no more.
func TestWhatWasTriedForPodsThatWentDoesNotPileUp(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	q, err := orchestration.New(orchestration.Dependencies{Clock: clock, Lease: client.ObjectKey{Namespace: "x", Name: "queue"}, Identity: "process"})
	if err != nil {
		t.Fatal(err)
	}
	const tried = 1200
	for i := range tried {
		o := &v1alpha1.RTAction{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%04d", i), Labels: map[string]string{v1alpha1.LabelActionKey: fmt.Sprint(i)}}}
		o.Spec.Kind, o.Spec.Cause, o.Spec.Attempt, o.Spec.Pods = "Preempt", "pressure/1", 1, []v1alpha1.ActionPod{{UID: types.UID(fmt.Sprint(i))}}
		o.Status.Phase, o.Status.PhaseTime = []v1alpha1.ActionPhase{"RolledBack", "Refused", "Expired", "Succeeded"}[i%4], ptr.To(metav1.NewMicroTime(clock.Now()))
		orchestration.Know(q, o)
		clock.Step(10 * time.Second)
	}
	orchestration.Ask(q, "pressure/1")
	got := orchestration.Disposable(q)
	if want := tried*3/4 - orchestration.Kept; len(got) != want {
		t.Errorf("%d are forgotten, want %d", len(got), want)
	}
	for _, o := range got {
		if o.Status.Phase == "Succeeded" || o.Name > fmt.Sprintf("%04d", tried-orchestration.Kept) {
			t.Errorf("%s is forgotten, which is %s", o.Name, o.Status.Phase)
		}
	}
}

// An action that has moved a pod is known however long ago it was. Of those that came to nothing the last of each end are
// known, as each says something else.
func TestOnlyAttemptsLikeLaterOnesAreSuperseded(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	q, err := orchestration.New(orchestration.Dependencies{Clock: clock, Lease: client.ObjectKey{Namespace: "x", Name: "queue"}, Identity: "process"})
	if err != nil {
		t.Fatal(err)
	}
	attempt := int32(0)
	know := func(n int, kind rules.Kind, phase, waitingFor string) {
		for range n {
			attempt++
			o := &v1alpha1.RTAction{ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("%s-%s-%s-%03d", kind, phase, waitingFor, attempt), Labels: map[string]string{v1alpha1.LabelActionKey: string(kind)},
			}}
			o.Spec.Kind, o.Spec.Cause, o.Spec.Attempt = v1alpha1.ActionKind(kind), "pressure/1", attempt
			o.Spec.Pods = []v1alpha1.ActionPod{{Namespace: "default", Name: "a", UID: "a"}}
			o.Status.Phase, o.Status.PhaseTime, o.Status.WaitingFor = v1alpha1.ActionPhase(phase), ptr.To(metav1.NewMicroTime(clock.Now())), waitingFor
			orchestration.Know(q, o)
		}
	}
	know(20, rules.Migrate, "Failed", "")
	know(20, rules.OpenNode, "Succeeded", "")
	know(3, rules.Migrate, "Expired", rules.ReasonDisruptionBudget)
	know(20, rules.Migrate, "Expired", orchestration.ReasonNodeBeingDisrupted)
	know(20, rules.Migrate, "RolledBack", "")
	know(20, rules.OpenNode, "Failed", "")
	know(1, rules.Migrate, "Running", "")
	orchestration.Ask(q, "pressure/1")
	got := map[string]int{}
	for _, o := range orchestration.Disposable(q) {
		got[fmt.Sprintf("%s %s %s", o.Spec.Kind, o.Status.Phase, o.Status.WaitingFor)]++
	}
	most := 20 - orchestration.KeptAlike
	want := map[string]int{"Migrate Expired NodeBeingDisrupted": most, "Migrate RolledBack ": most, "OpenNode Failed ": most}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Nodes come and go, too. Of attempts at having a pod go, to whichever node, the last of each end are known, and so are those
// for each beneficiary.
func TestAttemptsAtOtherTargetsAreAttemptsAtTheSame(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	q, err := orchestration.New(orchestration.Dependencies{Clock: clock, Lease: client.ObjectKey{Namespace: "x", Name: "queue"}, Identity: "process"})
	if err != nil {
		t.Fatal(err)
	}
	know := func(what, pod, criticality string, change func(*v1alpha1.RTAction)) {
		for i := range 20 {
			o := &v1alpha1.RTAction{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%02d", what, i), Labels: map[string]string{v1alpha1.LabelActionKey: fmt.Sprint(what, i)}}}
			o.Spec.Kind, o.Spec.Cause, o.Spec.Attempt, o.Spec.Node, o.Spec.TargetNode = "Migrate", "pressure/1", 1, "a", fmt.Sprint("b", i)
			o.Spec.Pods, o.Spec.Beneficiary.Criticality = []v1alpha1.ActionPod{{UID: types.UID(pod)}}, criticality
			o.Status.Phase, o.Status.PhaseTime = "RolledBack", ptr.To(metav1.NewMicroTime(clock.Now()))
			if change != nil {
				change(o)
			}
			orchestration.Know(q, o)
			clock.Step(10 * time.Second)
		}
	}
	know("undone", "x", "High", nil)
	know("undone-for-low", "x", "Low", nil)
	know("undone-of-other", "y", "High", nil)
	know("full", "x", "High", func(o *v1alpha1.RTAction) {
		o.Status.Progress = map[string]string{v1alpha1.ProgressElsewhere: o.Spec.TargetNode}
	})
	know("expired", "x", "High", func(o *v1alpha1.RTAction) { o.Status.Phase = "Expired" })
	know("refused", "x", "High", func(o *v1alpha1.RTAction) { o.Status.Phase = "Refused" })
	know("done", "x", "High", func(o *v1alpha1.RTAction) { o.Status.Phase = "Succeeded" })
	orchestration.Ask(q, "pressure/1")
	got := map[string]bool{}
	for _, o := range orchestration.Disposable(q) {
		got[o.Name] = true
	}
	want := map[string]bool{}
	for _, what := range []string{"undone", "undone-for-low", "undone-of-other", "full", "expired"} {
		for i := range 20 - orchestration.KeptAlike {
			want[fmt.Sprintf("%s-%02d", what, i)] = true
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("forgotten are %v, want %v", got, want)
	}
}

// The queue does not use the name of a forgotten attempt again. What is named after an action, as the PodMigration of one of
// the ladder's (kept for an hour), would be taken for that of another.
func TestAForgottenAttemptsNameIsNotUsedAgain(t *testing.T) {
	s := newStage(t)
	for _, n := range []string{"n1", "n2", "n3"} {
		s.node(n)
	}
	s.conduct["NoCore"] = conduct{givesUp: true}
	p := s.spawn()
	s.turns(p, 1)
	pod := s.pod("a1")
	to := func(node string) orchestration.Request {
		r := s.request(rules.Migrate, "NoCore", "n1", pod)
		r.TargetNode = node
		return r
	}
	attempt := func(r orchestration.Request) string {
		ticket := s.submit(p, r)
		for !ticket.Phase.Over() {
			s.turns(p, 1)
			ticket = s.submit(p, r)
		}
		return ticket.Name
	}
	first := attempt(to("n2"))
	for range orchestration.KeptAlike {
		attempt(to("n3"))
		s.turns(p, 2)
		ticket, _ := p.queue.Find(to("n3"))
		s.clock.Step(ticket.Again.Sub(s.clock.Now()))
	}
	s.turns(p, 2)
	if again := attempt(to("n2")); again == first {
		t.Errorf("another attempt has the name of the first: %s", again)
	}
}

// An action that waits for a place in a NodePool's budget which does not come free for long has not gone between two attempts,
// as long as its cause is asked about.
func TestAnActionThatRestsFromWaitingForAPlaceAwaitsItStill(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	s.nodes.allowed["pool"] = 0
	p := s.spawn()
	s.turns(p, 1)
	r := s.request(rules.ReplaceNode, "Replaces", "n1")
	r.NodePool = "pool"
	ask := func() orchestration.Ticket {
		_, err := p.queue.ForCause(r.Cause)
		s.must(err)
		r.StartBy = s.clock.Now().Add(30 * time.Second)
		return s.submit(p, r)
	}
	awaiting := func() int { return len(p.queue.Awaiting(rules.ReasonPoolBudget)) }
	ask()
	s.turns(p, 1)
	attempts, first := map[string]bool{}, s.action(ask().Name).Spec.Since
	for began := s.clock.Now(); s.clock.Now().Sub(began) < 20*time.Minute; s.clock.Step(9 * time.Second) {
		attempts[ask().Name] = true
		s.turns(p, 1)
		if got := awaiting(); got != 1 {
			t.Fatalf("after %s, at attempt %d, %d await the place: %q", s.clock.Now().Sub(began), len(attempts), got, s.summary())
		}
	}
	last := s.action(ask().Name)
	if len(attempts) < 4 || !last.Spec.Since.Equal(first) {
		t.Errorf("%d attempts, the last since %s, want it to be since %s", len(attempts), last.Spec.Since, first)
	}
	p = s.spawn()
	s.turns(p, 1)
	if got := awaiting(); got != 1 {
		t.Errorf("to the next leader %d await the place", got)
	}
	for !ask().Phase.Over() {
		s.turns(p, 1)
	}
	s.clock.Step(3 * time.Minute)
	if got := awaiting(); got != 0 {
		t.Errorf("%d await the place after nobody has asked for three minutes", got)
	}
	s.nodes.allowed["pool"] = 1
	for phase := rules.Expired; phase != rules.Succeeded; phase = ask().Phase {
		s.turns(p, 10)
	}
	if got := awaiting(); got != 0 {
		t.Errorf("%d await the place, and have had it", got)
	}
}
