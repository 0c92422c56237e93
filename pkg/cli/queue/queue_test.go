package queue_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cli/queue"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// action was asked for so long ago.
func action(name, criticality string, phase v1alpha1.ActionPhase, age time.Duration) v1alpha1.RTAction {
	return v1alpha1.RTAction{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.RTActionSpec{
			Kind: "Preempt", Reason: "NoCore", Cause: "pod/x", Attempt: 1, Node: "edge-1", Timeout: metav1.Duration{Duration: time.Minute},
			Since:       &metav1.MicroTime{Time: now.Add(-age)},
			Beneficiary: v1alpha1.ActionBeneficiary{Kind: "Pod", Namespace: "default", Name: "control", Criticality: criticality},
			Pods:        []v1alpha1.ActionPod{{Namespace: "default", Name: "logger", UID: "u"}},
			Moves:       []v1alpha1.ActionMove{{PodUID: "u", Container: "control", Core: 2}},
			Displaces:   []v1alpha1.ActionPod{{Namespace: "default", Name: "peer", UID: "v"}},
		},
		Status: v1alpha1.RTActionStatus{Phase: phase, PhaseTime: &metav1.MicroTime{Time: now.Add(-age / 2)}},
	}
}

func sample() []v1alpha1.RTAction {
	blocked := action("blocked", "High", "Waiting", time.Minute)
	blocked.Status.WaitingFor, blocked.Status.Message = "PodDisruptionBudget", "PodBudget default/web allows 0, 1 needed"
	failing := action("failing", "Low", "Running", time.Minute)
	failing.Status.LastError = "the node\ndoes not answer"
	long := action("long", "Low", "Failed", time.Hour)
	long.Status.Message = strings.Repeat("word ", 40)
	return []v1alpha1.RTAction{
		action("young", "Low", "", time.Second), blocked, failing, long, action("done", "Middle", "Succeeded", time.Minute),
		action("old", "Low", "Waiting", 25*time.Minute), action("undone", "High", "RollingBack", time.Hour),
	}
}

func names(list []queue.Action) (out []string) {
	for _, a := range list {
		out = append(out, a.Name)
	}
	return out
}

func TestOrder(t *testing.T) {
	v := queue.Build(sample(), 10*time.Minute, now)
	for what, got := range map[string][]queue.Action{"old blocked young": v.Waiting, "undone failing": v.Running, "done long": v.Over} {
		if strings.Join(names(got), " ") != what {
			t.Errorf("got %v, want %s", names(got), what)
		}
	}
}

func TestText(t *testing.T) {
	var out strings.Builder
	if err := queue.Build(sample(), 10*time.Minute, now).Text(&out, false, now); err != nil {
		t.Fatal(err)
	}
	want := `3 actions waiting, in this order
  ACTION   FOR              CRITICALITY  NODE    STATE                AGE  WHY
  old      default/control  Low          edge-1  Waiting              25m  
  blocked  default/control  High         edge-1  PodDisruptionBudget  60s  PodBudget default/web allows 0, 1 needed
  young    default/control  Low          edge-1  Waiting              1s   
2 actions running
  ACTION   FOR              CRITICALITY  NODE    STATE        AGE  WHY
  undone   default/control  High         edge-1  RollingBack  60m  
  failing  default/control  Low          edge-1  Running      60s  Trying again: the node does not answer
2 actions over lately
  ACTION  FOR              CRITICALITY  NODE    STATE      AGE  WHY
  done    default/control  Middle       edge-1  Succeeded  60s  
  long    default/control  Low          edge-1  Failed     60m  ` + strings.Repeat("word ", 17) + "wo...\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestWideTablesHaveEverything(t *testing.T) {
	var out strings.Builder
	if err := queue.Build(sample(), 10*time.Minute, now).Text(&out, true, now); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"REASON  ATTEMPT  PODS            MOVES        DISPLACES", "NoCore  1        default/logger  u/control>2  default/peer", strings.TrimSpace(strings.Repeat("word ", 40))} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

func TestAnEmptyQueueSaysSo(t *testing.T) {
	var out strings.Builder
	v := queue.Build(nil, time.Minute, now)
	if err := v.Text(&out, false, now); err != nil || out.String() != "0 actions waiting, in this order\n0 actions running\n0 actions over lately\n" {
		t.Errorf("%v: %q", err, out.String())
	}
	out.Reset()
	if err := v.JSON(&out); err != nil || strings.Contains(out.String(), "null") {
		t.Errorf("%v: %q", err, out.String())
	}
}

func TestManyThatAreOverAreLeftOutOfTables(t *testing.T) {
	var many []v1alpha1.RTAction
	for i := range 12 {
		many = append(many, action(string(rune('a'+i)), "Low", "Succeeded", time.Minute))
	}
	v := queue.Build(many, time.Minute, now)
	var text, data strings.Builder
	if err := v.Text(&text, false, now); err != nil {
		t.Fatal(err)
	}
	if err := v.JSON(&data); err != nil {
		t.Fatal(err)
	}
	var read queue.View
	if err := json.Unmarshal([]byte(data.String()), &read); err != nil || len(read.Over) != 12 {
		t.Errorf("%v, %d in JSON", err, len(read.Over))
	}
	if !strings.Contains(text.String(), "12 actions over lately, the last 10 of them") || strings.Count(text.String(), "Succeeded") != 10 {
		t.Error(text.String())
	}
}
