package orchestration_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

func TestAnActionFromEndToEnd(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	p := s.spawn()
	if _, err := p.queue.Submit(t.Context(), s.request(rules.Preempt, "NoCore", "n1")); !errors.Is(err, orchestration.ErrNotReady) {
		t.Errorf("before anything was read: %v", err)
	}
	s.turns(p, 1)
	pod := s.pod("a1")
	r := s.request(rules.Preempt, "NoCore", "n1", pod)
	first := s.submit(p, r)
	if again := s.submit(p, r); again != first || first.Phase != rules.Waiting || first.Attempt != 1 {
		t.Errorf("asked twice: %+v, %+v", first, again)
	}
	s.is("NoCore Waiting")
	s.turns(p, 1)
	if got := s.action(first.Name); got.Status.Phase != "Running" || got.Status.Progress["taken"] != "yes" || got.Status.Message != "taken in hand" {
		t.Errorf("status: %+v", got.Status)
	}
	if p.queue.HoldsPod(pod.UID) != first.Name || p.queue.HoldsNode("n1") != first.Name || p.queue.HoldsNode("n2") != "" {
		t.Error("it does not say who has the pod and the node")
	}
	s.turns(p, 3)
	s.is("NoCore Succeeded")
	s.ends()
	if ticket, ok := p.queue.Get(first.Name); !ok || ticket.Phase != rules.Succeeded || ticket.Message != "done" || !ticket.Again.IsZero() || p.queue.HoldsPod(pod.UID) != "" {
		t.Errorf("%t %+v", ok, ticket)
	}
	if done := s.submit(p, r); done.Phase != rules.Succeeded {
		t.Errorf("asked again for what is done: %+v", done)
	}
	for _, object := range []string{"a1", "n1", "m-nocore"} {
		if got := s.told.on(object); !slices.Equal(got, []string{"ActionStarted", "ActionFinished"}) {
			t.Errorf("told on %s: %v", object, got)
		}
	}
}

// What only says in other words what an action waits for is not stored with every step. The ticket has the last words, and so
// has the record of an action that ends for being late.
func TestWordsOfARunningActionAreStoredSeldom(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	s.conduct["NoCore"] = conduct{hangs: true}
	p := s.spawn()
	s.turns(p, 1)
	r := s.request(rules.Preempt, "NoCore", "n1", s.pod("a1"))
	r.Timeout = 15 * time.Second
	name := s.submit(p, r).Name
	s.turns(p, 2)
	before := p.points
	s.turns(p, 8)
	ticket, _ := p.queue.Get(name)
	if stored := s.action(name).Status.Message; p.points-before > 1 || ticket.Message != fmt.Sprintf("nothing happens, for the %d. time", s.looks) || stored == ticket.Message {
		t.Errorf("%d writes; stored is %q, and told %q", p.points-before, stored, ticket.Message)
	}
	s.turns(p, 3)
	if p.points-before > 2 {
		t.Errorf("%d writes", p.points-before)
	}
	last := s.looks
	s.clock.Step(5 * time.Second)
	s.must(p.decide())
	if o := s.action(name); o.Status.Phase != "RollingBack" || !strings.HasSuffix(o.Status.Message, fmt.Sprintf("for the %d. time", last)) {
		t.Errorf("%s: %s, after %d", o.Status.Phase, o.Status.Message, last)
	}
}

// Nodes are not told of every pod that comes and goes, and no object is told twice that a pod was moved.
func TestWhoIsToldOfAMove(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	p := s.spawn()
	s.turns(p, 1)
	s.submit(p, s.request(rules.Migrate, "Move", "n1", s.pod("a1")))
	s.conduct["Back"] = conduct{givesUp: true}
	s.submit(p, s.request(rules.Migrate, "Back", "n1", s.pod("b1")))
	s.turns(p, 4)
	s.is("Back RolledBack", "Move Succeeded")
	for object, want := range map[string][]string{
		"n1": nil, "a1": {"ActionStarted"}, "b1": {"ActionStarted", "ActionRollsBack", "ActionFinished"},
	} {
		if got := s.told.on(object); !slices.Equal(got, want) {
			t.Errorf("told on %s: %v, want %v", object, got, want)
		}
	}
}

// moves of so many containers.
func moves(n int) []v1alpha1.ActionMove {
	out := make([]v1alpha1.ActionMove, n)
	for i := range out {
		out[i] = v1alpha1.ActionMove{PodUID: "u", Container: fmt.Sprintf("c%d", i), Core: int32(i % 4)}
	}
	return out
}

func TestOtherMovesAreAnotherAction(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	p := s.spawn()
	s.turns(p, 1)
	r := s.request(rules.Rearrange, "Moving", "n1")
	r.Moves = moves(2)
	first := s.submit(p, r)
	r.Moves = []v1alpha1.ActionMove{r.Moves[1], r.Moves[0]}
	if again := s.submit(p, r); again.Name != first.Name {
		t.Errorf("the same moves in another order are %s, not %s", again.Name, first.Name)
	}
	r.Moves = moves(2)
	r.Moves[1].Core++
	if other := s.submit(p, r); other.Name == first.Name {
		t.Error("a move to another core is no other action")
	}
	if got := s.action(first.Name).Spec.Moves; !slices.Equal(got, moves(2)) {
		t.Errorf("stored: %v", got)
	}
}

func TestRunningAreThoseThatHold(t *testing.T) {
	s := newStage(t)
	for _, name := range []string{"n1", "n2"} {
		s.node(name)
	}
	p := s.spawn()
	s.turns(p, 1)
	s.conduct["Hanging"] = conduct{hangs: true}
	s.conduct["Stuck"] = conduct{hangs: true, clings: true}
	hanging := s.submit(p, s.request(rules.Rearrange, "Hanging", "n1"))
	stuck := s.submit(p, s.request(rules.Rearrange, "Stuck", "n2"))
	s.submit(p, s.request(rules.Preempt, "Other", "n2", s.pod("a1")))
	if got := p.queue.Running(rules.Rearrange); len(got) != 0 {
		t.Errorf("before any began: %v", got)
	}
	s.turns(p, 1)
	s.submit(p, s.request(rules.Rearrange, "Waiting", "n1"))
	s.turns(p, 1)
	s.must(p.queue.Withdraw(t.Context(), stuck.Name, "not wanted"))
	var names []string
	for _, o := range p.queue.Running(rules.Rearrange) {
		names = append(names, o.Name+" "+string(o.Status.Phase))
	}
	want := []string{hanging.Name + " Running", stuck.Name + " RollingBack"}
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	s := newStage(t)
	p := s.spawn()
	s.turns(p, 1)
	pod := v1alpha1.ActionPod{Namespace: s.namespace, Name: "a", UID: "u"}
	for want, change := range map[string]func(*orchestration.Request){
		`reason: "no core" is not one PascalCase word`:           func(r *orchestration.Request) { r.Reason = "no core" },
		`cause: "" must have 1 to 256 bytes`:                     func(r *orchestration.Request) { r.Cause = "" },
		"beneficiary.name: must not be empty":                    func(r *orchestration.Request) { r.Beneficiary.Name = "" },
		`kind: "Dance" is not one of`:                            func(r *orchestration.Request) { r.Kind = "Dance" },
		"limit: 0s is not a positive duration":                   func(r *orchestration.Request) { r.Timeout = 0 },
		"timeout: 25h0m0s is not at most 24h":                    func(r *orchestration.Request) { r.Timeout = 25 * time.Hour },
		`criticality: "Huge" is not one of`:                      func(r *orchestration.Request) { r.Beneficiary.Criticality = "Huge" },
		"pods[0].uid: must not be empty":                         func(r *orchestration.Request) { r.Pods = []v1alpha1.ActionPod{{Namespace: "x", Name: "y"}} },
		"need the pods that they move":                           func(r *orchestration.Request) { r.Pods = nil },
		"moves: only actions of kind Rearrange have them":        func(r *orchestration.Request) { r.Moves = moves(1) },
		"moves: 65 are more than 64":                             func(r *orchestration.Request) { r.Kind, r.Moves = rules.Rearrange, moves(65) },
		`moves[0]: podUID "" and container "" must not be empty`: func(r *orchestration.Request) { r.Kind, r.Moves = rules.Rearrange, make([]v1alpha1.ActionMove, 1) },
		"moves[1]: container c0 of pod u can go to one core only": func(r *orchestration.Request) {
			r.Kind, r.Moves = rules.Rearrange, append(moves(1), moves(1)...)
		},
		"targetNode is only for kind Migrate": func(r *orchestration.Request) { r.TargetNode = "n2" },
	} {
		r := s.request(rules.Preempt, "NoCore", "n1", pod)
		change(&r)
		if _, err := p.queue.Submit(t.Context(), r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	s.is()
}

func TestWhatAnActionWaitsForIsSaid(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	s.node("n2")
	s.node("n3")
	s.node("n4")
	s.budget("web", "a", 0)
	s.budget("one", "b", 1)
	s.budget("two", "b", 1)
	s.nodes.disrupted["n2"] = "is being replaced"
	s.nodes.allowed["pool"], s.nodes.allowed["typo"] = 0, 0
	s.nodes.invalid = map[string]string{"typo": "spec.disruption.budgets[0].schedule is x"}
	s.unable[rules.Migrate] = true
	s.options.NamespaceLimit = 1
	p := s.spawn()
	s.turns(p, 1)
	s.submit(p, s.request(rules.Preempt, "Budget", "n1", s.pod("a1")))
	s.submit(p, s.request(rules.Preempt, "Disrupted", "n2", s.pod("c1")))
	s.submit(p, s.request(rules.Migrate, "Executor", "n1", s.pod("d1")))
	s.submit(p, s.request(rules.Preempt, "Limit", "n1", s.pod("e1"), s.pod("f1")))
	pool := s.request(rules.ReplaceNode, "Pool", "n3")
	pool.NodePool = "pool"
	s.submit(p, pool)
	typo := s.request(rules.ReplaceNode, "Typo", "n4")
	typo.NodePool = "typo"
	s.submit(p, typo)
	s.submit(p, s.request(rules.Preempt, "Several", "n1", s.pod("b1")))
	s.turns(p, 1)
	s.is("Budget Waiting for PodDisruptionBudget", "Disrupted Waiting for NodeBeingDisrupted", "Executor Waiting for NoExecutor",
		"Limit Waiting for Limit", "Pool Waiting for NodePoolBudget", "Several Waiting for SeveralPodDisruptionBudgets",
		"Typo Waiting for NodePoolBudgetInvalid")
	if got := s.told.on("m-disrupted"); !slices.Equal(got, []string{"ActionWaits"}) {
		t.Errorf("told: %v", got)
	}
	if len(s.effects) > 0 {
		t.Errorf("done: %v", s.effects)
	}
	delete(s.nodes.disrupted, "n2")
	s.nodes.allowed["pool"], s.nodes.allowed["typo"], s.nodes.invalid = 1, 1, nil
	s.allow("web", 1)
	s.turns(p, 12)
	s.is("Budget Succeeded", "Disrupted Succeeded", "Executor Waiting for NoExecutor",
		"Limit Waiting for Limit", "Pool Succeeded", "Several Waiting for SeveralPodDisruptionBudgets", "Typo Succeeded")
}

// A node that is being closed waits for its pods to go: what takes them away does not wait for the node.
func TestPodsMigrateOffNodesThatAreBeingClosed(t *testing.T) {
	s := newStage(t)
	for _, n := range []string{"closing", "open"} {
		s.node(n)
	}
	s.nodes.disrupted["closing"] = "is being closed"
	ending := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "ending", Finalizers: []string{"example.com/drains"}}}
	s.must(s.api.Create(s.Context(), ending))
	s.must(s.api.Delete(s.Context(), ending))
	p := s.spawn()
	s.turns(p, 1)
	for i, c := range []struct{ reason, from, to string }{
		{"Eviction", "closing", "open"}, {"Drift", "closing", "open"}, {"RTPressure", "closing", "open"}, {"Drain", "open", "closing"},
		{"Interruption", "ending", "open"}, {"Manual", "ending", "open"}, {"Repair", "open", "ending"},
	} {
		r := s.request(rules.Migrate, c.reason, c.from, s.pod(fmt.Sprintf("a%d", i)))
		r.TargetNode = c.to
		s.submit(p, r)
	}
	s.turns(p, 12)
	s.is("Drain Waiting for NodeBeingDisrupted", "Drift Succeeded", "Eviction Succeeded", "Interruption Succeeded", "Manual Refused",
		"RTPressure Succeeded", "Repair Refused")
}

func TestOneAtATimeForOnePodAndOneBudget(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	s.budget("web", "a", 1)
	p := s.spawn()
	s.turns(p, 1)
	first, second, other := s.pod("a1"), s.pod("a2"), s.pod("b1")
	low, high := s.request(rules.Preempt, "Low", "n1", first), s.request(rules.Preempt, "Second", "n1", second)
	high.Beneficiary.Criticality = "High"
	s.submit(p, low)
	s.submit(p, high)
	s.submit(p, s.request(rules.Migrate, "Third", "n1", other))
	s.submit(p, s.request(rules.Preempt, "Whole", "n1", other))
	s.turns(p, 1)
	s.is("Low Waiting for InUse", "Second Running", "Third Running", "Whole Waiting for InUse")
	s.turns(p, 3)
	s.is("Low Waiting for PodDisruptionBudget", "Second Succeeded", "Third Succeeded", "Whole Refused")
	s.allow("web", 1)
	s.turns(p, 3)
	s.is("Low Succeeded", "Second Succeeded", "Third Succeeded", "Whole Refused")
	s.ends()
}

// What goes only when something else serves in its place takes nothing from a budget.
func TestWhatIsDoneBesideIsNotCharged(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	s.budget("web", "a", 0)
	p := s.spawn()
	s.turns(p, 1)
	beside := s.request(rules.Migrate, "Beside", "n1", s.pod("a1"))
	beside.Beside = true
	s.submit(p, beside)
	s.submit(p, s.request(rules.Migrate, "Evicts", "n1", s.pod("a2")))
	s.turns(p, 1)
	s.is("Beside Running", "Evicts Waiting for PodDisruptionBudget")
}

func TestABudgetThatNeverAllowsKeepsNoOtherAction(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	s.budget("web", "a", 0)
	p := s.spawn()
	s.turns(p, 1)
	stuck := s.request(rules.Preempt, "Stuck", "n1", s.pod("a1"))
	stuck.Beneficiary.Criticality, stuck.StartBy = "High", s.clock.Now().Add(time.Hour)
	s.submit(p, stuck)
	s.submit(p, s.request(rules.Rearrange, "Whole", "n1"))
	s.turns(p, 4)
	s.is("Stuck Waiting for PodDisruptionBudget", "Whole Succeeded")
	s.clock.Step(time.Hour)
	s.turns(p, 1)
	s.is("Stuck Expired for PodDisruptionBudget") // the other is long over
	if ticket, ok := p.queue.Get(s.actions()[0].Name); !ok || ticket.WaitingFor != "" {
		t.Errorf("the ticket says that it waits for %q", ticket.WaitingFor)
	}
	if got := s.actions()[0].Status.Message; !strings.Contains(got, "PodBudget "+s.namespace+"/web allows 0, 1 needed") {
		t.Errorf("message: %s", got)
	}
	s.ends()
}

// Whose container goes to another core is in that action's hands, also for one that names the pod and no node.
func TestAPodWhoseContainerMovesIsInUse(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	a := s.pod("a")
	s.conduct["Shift"] = conduct{hangs: true}
	p := s.spawn()
	s.turns(p, 1)
	shift := s.request(rules.Rearrange, "Shift", "n1")
	shift.Moves = []v1alpha1.ActionMove{{PodUID: a.UID, Container: "app", Core: 1}, {PodUID: a.UID, Container: "helper", Core: 1}}
	held := s.submit(p, shift).Name
	s.submit(p, s.request(rules.Migrate, "Move", "", a))
	s.turns(p, 3)
	s.is("Move Waiting for InUse", "Shift Running")
	if got := p.queue.HoldsPod(a.UID); got != held {
		t.Errorf("the pod is in the hands of %q, want %q", got, held)
	}
}

// A controller that asks for something patience by patience must not begin anew each time: actions that come later would always
// be before it.
func TestAgeGoesOnFromRequestToRequest(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	b := s.budget("web", "a", 0)
	p := s.spawn()
	s.turns(p, 1)
	patient := s.request(rules.Preempt, "Patient", "n1", s.pod("a1"))
	submitted := s.clock.Now()
	for attempt := range int32(4) {
		patient.StartBy = s.clock.Now().Add(30 * time.Second)
		if got := s.submit(p, patient); got.Attempt != attempt+1 {
			t.Fatalf("attempt %d; want %d", got.Attempt, attempt+1)
		}
		s.turns(p, 2)
		s.clock.Step(30 * time.Second)
		s.turns(p, 1)
		s.clock.Step(10 * time.Minute) // the rest
	}
	patient.StartBy = s.clock.Now().Add(30 * time.Second)
	s.submit(p, patient)
	more := s.request(rules.Preempt, "Impatient", "n1", s.pod("a2"))
	more.Beneficiary.Criticality = "Middle"
	s.submit(p, more)
	s.allow(b.Name, 1)
	s.turns(p, 1)
	for _, o := range s.actions() {
		switch {
		case o.Spec.Reason == "Patient" && !o.Spec.Since.Time.Equal(submitted.Truncate(time.Microsecond)):
			t.Errorf("attempt %d is asked for since %v; want %v", o.Spec.Attempt, o.Spec.Since, submitted)
		case o.Spec.Reason == "Patient" && o.Spec.Attempt == 5 && o.Status.Phase != "Running", o.Spec.Reason == "Impatient" && o.Status.Phase == "Running":
			t.Errorf("%s is %s: %s; want the one that has waited for 40 minutes to come first", o.Spec.Reason, o.Status.Phase, o.Status.Message)
		}
	}
	s.turns(p, 2)
	s.allow(b.Name, 1)
	s.turns(p, 3)
	s.ends()
}

func TestABudgetThatWasJustChangedAllowsNothing(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	b := s.budget("web", "a", 1)
	s.must(s.api.Get(t.Context(), client.ObjectKeyFromObject(b), b))
	b.Spec.MinAvailable.IntVal = 2
	s.must(s.api.Update(t.Context(), b))
	p := s.spawn()
	s.turns(p, 1)
	s.submit(p, s.request(rules.Preempt, "NoCore", "n1", s.pod("a1")))
	s.turns(p, 2)
	s.is("NoCore Waiting for PodDisruptionBudget")
}

func TestTimeRunsOutAndWhatWasDoneIsUndone(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	s.conduct["Hangs"], s.conduct["Clings"], s.conduct["GivesUp"] = conduct{hangs: true}, conduct{hangs: true, clings: true}, conduct{givesUp: true}
	p := s.spawn()
	s.turns(p, 1)
	s.submit(p, s.request(rules.Preempt, "Hangs", "n1", s.pod("a1")))
	s.submit(p, s.request(rules.Preempt, "Clings", "n1", s.pod("b1")))
	s.submit(p, s.request(rules.Preempt, "GivesUp", "n1", s.pod("c1")))
	s.turns(p, 4)
	s.is("Clings Running", "GivesUp RolledBack", "Hangs Running")
	s.clock.Step(time.Minute)
	s.turns(p, 2)
	s.is("Clings RollingBack", "GivesUp RolledBack", "Hangs RolledBack")
	s.clock.Step(time.Minute)
	s.turns(p, 2)
	s.is("Clings Failed", "GivesUp RolledBack", "Hangs RolledBack")
	all := s.actions()
	for i, want := range []string{"It could not be undone within 1m0s: It took longer than 1m0s: nothing happens", "there is no room", "It took longer than 1m0s: nothing happens"} {
		if got := all[i].Status.Message; !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q, and how often", got, want)
		}
	}
	if got := s.told.on("a1"); !slices.Equal(got, []string{"ActionStarted", "ActionRollsBack", "ActionFinished"}) {
		t.Errorf("told: %v", got)
	}
}

func TestErrorsOfStepsAreToldAndTriedAgain(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	s.faulty = true
	s.conduct["NoCore"] = conduct{failing: errors.New("the node does not answer")}
	p := s.spawn()
	s.turns(p, 1)
	ticket := s.submit(p, s.request(rules.Preempt, "NoCore", "n1", s.pod("a1")))
	s.turns(p, 2)
	if got := s.action(ticket.Name).Status; got.Phase != "Running" || got.LastError != "the node does not answer" {
		t.Errorf("status: %+v", got)
	}
	delete(s.conduct, "NoCore")
	s.turns(p, 3)
	if got := s.action(ticket.Name).Status; got.Phase != "Succeeded" || got.LastError != "" {
		t.Errorf("status: %+v", got)
	}
}

func TestAnotherAttemptComesAfterARestThatDoubles(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	s.conduct["NoCore"] = conduct{givesUp: true}
	p := s.spawn()
	s.turns(p, 1)
	r := s.request(rules.Preempt, "NoCore", "n1", s.pod("a1"))
	for attempt, rest := int32(1), orchestration.Rest; attempt <= 7; attempt, rest = attempt+1, min(2*rest, orchestration.RestMost) {
		if ticket := s.submit(p, r); ticket.Attempt != attempt || ticket.Phase != rules.Waiting {
			t.Fatalf("attempt %d: %+v", attempt, ticket)
		}
		s.turns(p, 5)
		ticket := s.submit(p, r)
		if ticket.Attempt != attempt || ticket.Phase != rules.RolledBack {
			t.Fatalf("attempt %d: %+v", attempt, ticket)
		}
		over := s.action(ticket.Name).Status.PhaseTime.Time
		if !ticket.Again.Equal(over.Add(rest)) {
			t.Errorf("attempt %d: again after %s, want %s", attempt, ticket.Again.Sub(over), rest)
		}
		s.clock.SetTime(ticket.Again.Add(-time.Millisecond))
		if early := s.submit(p, r); early.Attempt != attempt {
			t.Errorf("attempt %d: another within the rest: %+v", attempt, early)
		}
		s.clock.SetTime(ticket.Again)
		s.turns(p, 1)
	}
}
