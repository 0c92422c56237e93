package ladder_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// made is a Rearrange for high that moved pods, asked for and done so many seconds after the start.
func made(kind string, seconds int, pods ...string) *v1alpha1.RTAction {
	at := ptr.To(metav1.NewMicroTime(start.Add(time.Duration(seconds) * time.Second)))
	o := &v1alpha1.RTAction{}
	o.Name = fmt.Sprint(kind, seconds)
	o.Spec = v1alpha1.RTActionSpec{Kind: v1alpha1.ActionKind(kind), Since: at, Beneficiary: v1alpha1.ActionBeneficiary{Kind: "Pod", Name: "high", UID: "high"}}
	o.Status = v1alpha1.RTActionStatus{Phase: "Succeeded", PhaseTime: at}
	for _, pod := range pods {
		o.Spec.Moves = append(o.Spec.Moves, v1alpha1.ActionMove{PodUID: types.UID(pod), Container: "app"})
	}
	return o
}

func TestNextContainerToGoBack(t *testing.T) {
	t.Parallel()
	// All claims are on core 0; one and two run on core 1, three on core 2.
	scattered := func() *cluster {
		w := newCluster()
		w.node("a", 3)
		w.run("high", "a", "High", 20, 20, 0)
		for name, core := range map[string]int32{"one": 1, "two": 1, "three": 2} {
			w.run(name, "a", "Low", 15, 15, 0)
			servers := w.rtNodes["a"].Spec.Servers
			servers[len(servers)-1].Cores = []int32{core}
		}
		w.run("fill", "a", "Middle", 40, 40, 1)
		w.run("more", "a", "Middle", 10, 10, 2)
		return w
	}
	answers := []*v1alpha1.RTAction{made("Rearrange", 1, "one"), made("Rearrange", 2, "two"), made("Rearrange", 3, "three")}
	for name, c := range map[string]struct {
		change  func(*cluster)
		answers []*v1alpha1.RTAction
		returns []*v1alpha1.RTAction
		want    string
	}{
		"the last that does not crowd its core":          {func(*cluster) {}, answers, nil, "two"},
		"the last, when nobody is left for whom it went": {func(w *cluster) { w.gone("high") }, answers, nil, "three"},
		"none that was not moved for this pressure":      {func(*cluster) {}, answers[2:], nil, "nobody"},
		"none whose core has no room":                    {func(w *cluster) { w.run("big", "a", "High", 60, 60, 0) }, answers, nil, "nobody"},
		"none that has gone":                             {func(w *cluster) { w.gone("two") }, answers, nil, "one"},
		"none that is back": {func(w *cluster) {
			for i, s := range w.rtNodes["a"].Spec.Servers {
				if s.Pod == "two" {
					w.rtNodes["a"].Spec.Servers[i].Cores = []int32{0}
				}
			}
		}, answers, nil, "one"},
		"none that answered a relapse": {func(*cluster) {}, answers, []*v1alpha1.RTAction{made("Rearrange", 2, "other")}, "two"},
		"none that answered it later":  {func(*cluster) {}, answers, []*v1alpha1.RTAction{made("Rearrange", 1, "other")}, "one"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := scattered()
			c.change(w)
			n, _ := w.snapshot().NodeView("a")
			r, _, ok := ladder.Way{
				Node: n, Episode: ladder.Episode{Node: n.RTNode.UID, Begun: start, Active: true, Stage: ladder.StageRecovering}, Answers: c.answers, Returns: c.returns,
				Ticket:  func(orchestration.Request) (orchestration.Ticket, bool) { return orchestration.Ticket{}, false },
				Options: ladder.Defaults(), Now: start,
			}.Next()
			got := "nobody"
			if ok {
				got = string(r.Moves[0].PodUID)
				if r.Moves[0].Core != 0 || r.Cause == "" || r.Reason != ladder.ReasonRecovery {
					t.Errorf("it asks for %+v", r)
				}
			}
			if got != c.want {
				t.Errorf("%s goes back, want %s", got, c.want)
			}
		})
	}
}

// The controller repeats a failed return after its backoff, and gives up after a few attempts.
func TestAReturnThatFailsIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := newCluster()
	w.node("a", 2)
	w.run("one", "a", "Low", 15, 15, 0)
	w.run("fill", "a", "Middle", 40, 40, 1)
	w.rtNodes["a"].Spec.Servers[0].Cores = []int32{1}
	n, _ := w.snapshot().NodeView("a")
	rests := start.Add(30 * time.Second)
	for name, c := range map[string]struct {
		ticket orchestration.Ticket
		now    time.Time
		ok     bool
		later  time.Time
	}{
		"resting":              {orchestration.Ticket{Phase: rules.RolledBack, Attempt: 1, Again: rests}, start, false, rests},
		"late":                 {orchestration.Ticket{Phase: rules.Expired, Attempt: 2, Again: rests}, start, false, rests},
		"rested":               {orchestration.Ticket{Phase: rules.RolledBack, Attempt: 2, Again: rests}, rests, true, time.Time{}},
		"for the third time":   {orchestration.Ticket{Phase: rules.RolledBack, Attempt: 3, Again: rests}, rests, false, time.Time{}},
		"not to be made again": {orchestration.Ticket{Phase: rules.Failed, Attempt: 1}, rests, false, time.Time{}},
	} {
		_, later, ok := ladder.Way{
			Node: n, Episode: ladder.Episode{Node: n.RTNode.UID, Begun: start, Active: true, Stage: ladder.StageRecovering},
			Answers: []*v1alpha1.RTAction{made("Rearrange", 1, "one")},
			Ticket:  func(orchestration.Request) (orchestration.Ticket, bool) { return c.ticket, true },
			Options: ladder.Defaults(), Now: c.now,
		}.Next()
		if ok != c.ok || !later.Equal(c.later) {
			t.Errorf("%s: goes back %t, later %s; want %t, %s", name, ok, later, c.ok, c.later)
		}
	}
}

// The same on an API server: in the end all moved containers are back, and only then the taint goes.
func TestFailedReturnSucceedsInTheEnd(t *testing.T) {
	s := fullEscalation(t)
	p := s.spawn()
	failed := false
	for range 150 {
		s.live()
		p.turn()
		s.clock.Step(tick)
		switch returns := strings.Count(strings.Join(s.actions(), "\n"), ladder.ReasonRecovery); {
		case returns == 0 && strings.HasPrefix(s.pressure("a"), "Eased"):
			s.conduct[rules.Rearrange] = rules.Result{Undo: true, Message: "not now"}
		case returns > 0:
			failed = failed || slices.ContainsFunc(s.actions(), func(a string) bool { return a == "Rearrange Recovery RolledBack" })
			if failed {
				delete(s.conduct, rules.Rearrange)
			}
		}
		if s.pressure("a") == "Ended" {
			break
		}
	}
	if got := s.actions(); !failed || s.pressure("a") != "Ended" || !slices.Contains(got, "Rearrange Recovery Succeeded") {
		t.Errorf("%s, after %q", s.pressure("a"), got)
	}
}
