package ladder_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
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

func TestWhoGoesBackNext(t *testing.T) {
	t.Parallel()
	// All claims are on core 0; one and two run on core 1, three on core 2.
	scattered := func() *town {
		w := newTown()
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
		change  func(*town)
		answers []*v1alpha1.RTAction
		returns []*v1alpha1.RTAction
		want    string
	}{
		"the last that does not crowd its core":          {func(*town) {}, answers, nil, "two"},
		"the last, when nobody is left for whom it went": {func(w *town) { w.gone("high") }, answers, nil, "three"},
		"none that was not moved for this pressure":      {func(*town) {}, answers[2:], nil, "nobody"},
		"none whose core has no room":                    {func(w *town) { w.run("big", "a", "High", 60, 60, 0) }, answers, nil, "nobody"},
		"none that has gone":                             {func(w *town) { w.gone("two") }, answers, nil, "one"},
		"none that is back": {func(w *town) {
			for i, s := range w.rtNodes["a"].Spec.Servers {
				if s.Pod == "two" {
					w.rtNodes["a"].Spec.Servers[i].Cores = []int32{0}
				}
			}
		}, answers, nil, "one"},
		"none that answered a relapse": {func(*town) {}, answers, []*v1alpha1.RTAction{made("Rearrange", 2, "other")}, "two"},
		"none that answered it later":  {func(*town) {}, answers, []*v1alpha1.RTAction{made("Rearrange", 1, "other")}, "one"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := scattered()
			c.change(w)
			n, _ := w.snapshot().NodeView("a")
			r, ok := ladder.Way{
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
