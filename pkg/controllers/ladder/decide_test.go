package ladder_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// words of a step.
func words(s ladder.Step) string {
	var out []string
	if len(s.Withdraw) > 0 {
		out = append(out, "withdraw "+strings.Join(s.Withdraw, " "))
	}
	if s.Stage != "" {
		out = append(out, "to "+s.Stage)
	}
	for name, is := range map[string]bool{"taint": s.Taint, "untaint": s.Untaint, "climb": s.Escalate, "return": s.Return} {
		if is {
			out = append(out, name)
		}
	}
	if s.Wait > time.Millisecond {
		out = append(out, fmt.Sprintf("wait %s", s.Wait))
	}
	return strings.Join(out, ", ")
}

// in is an action in a phase since so many seconds before now.
func in(phase string, ago int, waitingFor ...string) *v1alpha1.RTAction {
	at := ptr.To(metav1.NewMicroTime(start.Add(-time.Duration(ago) * time.Second)))
	o := &v1alpha1.RTAction{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	o.Spec = v1alpha1.RTActionSpec{Kind: "Migrate", Since: at}
	o.Status = v1alpha1.RTActionStatus{Phase: v1alpha1.ActionPhase(phase), PhaseTime: at, WaitingFor: strings.Join(waitingFor, "")}
	return o
}

func affectedSince(ago int) []ladder.AffectedContainer {
	return []ladder.AffectedContainer{{ServerView: &state.ServerView{}, Source: ladder.SourceOverruns, Last: start.Add(-time.Duration(ago) * time.Second)}}
}

func TestTheNextStep(t *testing.T) {
	t.Parallel()
	const overruns = ladder.SourceOverruns
	list := func(o ...*v1alpha1.RTAction) []*v1alpha1.RTAction { return o }
	for _, c := range []struct {
		name  string
		scene ladder.Scene
		stage string
		want  string
	}{
		{"nothing", ladder.Scene{Sees: true, Sure: true}, "", ""},
		{"a taint of nobody", ladder.Scene{Tainted: true}, "Ended", "untaint"},
		{"a beginning", ladder.Scene{Sees: true, Affected: affectedSince(0)}, "", "to " + overruns},
		{"another beginning", ladder.Scene{Sees: true, Affected: affectedSince(0)}, "Ended", "to " + overruns},
		{"the taint", ladder.Scene{Sees: true, Affected: affectedSince(0)}, overruns, "taint"},
		{"a silent agent", ladder.Scene{Tainted: true, Affected: affectedSince(0)}, overruns, "wait 2s"},
		{"an agent that was silent for long", ladder.Scene{Tainted: true, Silent: 10 * time.Minute, Answers: list(in("RolledBack", 5))}, overruns, "to Lifting"},
		{"what waits then", ladder.Scene{Tainted: true, Silent: time.Hour, Answers: list(in("Waiting", 5))}, overruns, "withdraw x"},
		{"what runs then", ladder.Scene{Tainted: true, Silent: time.Hour, Returns: list(in("Running", 5))}, overruns, "wait 2s"},
		{"the taint of its node", ladder.Scene{Tainted: true, Silent: time.Hour}, "Lifting", "untaint"},
		{"its end", ladder.Scene{Silent: time.Hour}, "Lifting", "to Ended"},
		{"after its end", ladder.Scene{Silent: time.Hour}, "Ended", ""},
		{"the first action", ladder.Scene{Sees: true, Tainted: true, Affected: affectedSince(0)}, overruns, "climb"},
		{"one under way", ladder.Scene{Sees: true, Tainted: true, Affected: affectedSince(0), Answers: list(in("Running", 5))}, overruns, "wait 2s"},
		{"one without an executor", ladder.Scene{Sees: true, Tainted: true, Affected: affectedSince(0), Answers: list(in("Waiting", 5, "NoExecutor"))}, overruns, "withdraw x"},
		{"one that has come to nothing", ladder.Scene{Sees: true, Tainted: true, Affected: affectedSince(0), Answers: list(in("RolledBack", 1))}, overruns, "climb"},
		{"one that has just been done", ladder.Scene{Sees: true, Tainted: true, Affected: affectedSince(0), Answers: list(in("Succeeded", 4))}, overruns, "wait 6s"},
		{"one that has helped", ladder.Scene{Sees: true, Tainted: true, Affected: affectedSince(9), Answers: list(in("Succeeded", 10))}, overruns, "wait 2s"},
		{"one that has not", ladder.Scene{Sees: true, Tainted: true, Affected: affectedSince(7), Answers: list(in("Succeeded", 10))}, overruns, "climb"},
		{"quiet, but not for long", ladder.Scene{Sees: true, Tainted: true}, overruns, "wait 2s"},
		{"quiet", ladder.Scene{Sees: true, Sure: true, Tainted: true, Answers: list(in("Waiting", 3))}, overruns, "withdraw x, to Eased"},
		{"eased", ladder.Scene{Sees: true, Sure: true, Tainted: true}, "Eased", "wait 1m0s"},
		{"eased twice before", ladder.Scene{Sees: true, Sure: true, Tainted: true, Episode: ladder.Episode{Relapses: 2}}, "Eased", "wait 4m0s"},
		{"eased too often", ladder.Scene{Sees: true, Sure: true, Tainted: true, Episode: ladder.Episode{Relapses: 99}}, "Eased", "wait 32m0s"},
		{"eased, and an action runs", ladder.Scene{Sees: true, Sure: true, Tainted: true, Answers: list(in("Running", 3)), Entered: start.Add(-time.Second)}, "Eased", "wait 2s"},
		{"calm, and an action runs still", ladder.Scene{Sees: true, Sure: true, Tainted: true, Answers: list(in("Running", 90)), Entered: start.Add(-time.Minute)}, "Eased", "withdraw x, wait 2s"},
		{"calm, and it is being undone", ladder.Scene{Sees: true, Sure: true, Tainted: true, Answers: list(in("RollingBack", 9)), Entered: start.Add(-time.Minute)}, "Eased", "wait 2s"},
		{"calm", ladder.Scene{Sees: true, Sure: true, Tainted: true, Entered: start.Add(-time.Minute)}, "Eased", "to Recovering"},
		{"a step back", ladder.Scene{Sees: true, Sure: true, Tainted: true, Entered: start.Add(-15 * time.Second)}, "Recovering", "return"},
		{"one each interval", ladder.Scene{Sees: true, Sure: true, Tainted: true, Entered: start.Add(-time.Minute), Returns: list(in("Succeeded", 5))}, "Recovering", "wait 10s"},
		{"lifting", ladder.Scene{Sees: true, Sure: true, Tainted: true, Entered: start}, "Lifting", "untaint"},
		{"lifted", ladder.Scene{Sees: true, Sure: true, Entered: start}, "Lifting", "wait 15s"},
		{"the end", ladder.Scene{Sees: true, Sure: true, Entered: start.Add(-time.Minute)}, "Lifting", "to Ended"},
		{"a node that is being closed begins nothing", ladder.Scene{Sees: true, Closing: true, Affected: affectedSince(0)}, "", ""},
		{"and climbs no further", ladder.Scene{Sees: true, Closing: true, Tainted: true, Affected: affectedSince(0)}, overruns, "wait 2s"},
		{"and eases, though it stays", ladder.Scene{Sees: true, Sure: true, Closing: true, Tainted: true}, overruns, "to Eased"},
		{"and gives up what it waited for", ladder.Scene{Sees: true, Sure: true, Closing: true, Tainted: true, Answers: list(in("Running", 90)), Entered: start.Add(-time.Minute)}, "Eased", "withdraw x, wait 2s"},
		{"and has nobody go back", ladder.Scene{Sees: true, Sure: true, Closing: true, Tainted: true, Entered: start.Add(-15 * time.Second)}, "Recovering", "to Lifting"},
		{"and loses its taint", ladder.Scene{Sees: true, Sure: true, Closing: true, Tainted: true, Entered: start}, "Lifting", "untaint"},
		{"a relapse", ladder.Scene{Sees: true, Sure: true, Tainted: true, Affected: affectedSince(0), Returns: list(in("Running", 1))}, "Recovering", "withdraw x, to " + overruns},
	} {
		c.scene.Episode = ladder.Episode{
			Node: "n", Begun: start, Active: c.stage != "" && c.stage != "Ended", Stage: c.stage, Relapses: c.scene.Relapses,
		}
		if c.scene.Entered.IsZero() {
			c.scene.Entered = start
		}
		c.scene.Options, c.scene.Now = ladder.Defaults(), start
		if got := words(c.scene.Next()); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// Two pressures of a node never begin at the same time, so they never have the same cause, whatever the clock does.
func TestEachPressureHasACauseOfItsOwn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e, now, seen := ladder.Episode{Node: "n"}, start, map[string]bool{}
		for range rapid.IntRange(1, 20).Draw(t, "changes") {
			now = now.Add(time.Duration(rapid.IntRange(-3000, 3000).Draw(t, "ms")) * time.Millisecond)
			was := e
			e = e.In(rapid.SampledFrom([]string{ladder.SourceMisses, ladder.StageEased, ladder.StageEnded}).Draw(t, "stage"), "", now, ladder.Defaults())
			switch {
			case e.Active && was.Active && e.Cause() != was.Cause():
				t.Fatalf("the cause changes from %s to %s within a pressure", was.Cause(), e.Cause())
			case e.Active && !was.Active && seen[e.Cause()]:
				t.Fatalf("two have cause %s", e.Cause())
			}
			seen[e.Cause()] = true
		}
	})
}
