package agent_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/frontdoor"
	"github.com/mainspring-rt/mainspring/pkg/test/access"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

func TestANodeIsGovernedByItsSpec(t *testing.T) {
	w := newWorld(t)
	w.fast.start("x")
	w.agent()
	p := w.pod("a")
	w.rtNode(serverFor(p))
	w.eventuallyTable("a server without a group", func(f *fakeFastPath) bool { return len(f.table.Servers) == 1 && f.table.Servers[0].Cgroup == "" })
	id, group := w.run(p, 1)
	w.eventuallyTable("a server with a group", func(f *fakeFastPath) bool {
		return len(f.table.Servers) == 1 && f.table.Servers[0].Cgroup == group && f.table.Servers[0].ContainerID == "containerd://"+id
	})
	w.eventuallyStatus("ready, with what is applied", func(s v1alpha1.RTNodeStatus) bool {
		return strings.HasPrefix(condition(s, v1alpha1.ConditionReady), "True Applied") && s.ObservedGeneration == 1 && len(s.Servers) == 1 && s.Servers[0].BudgetUs == 2000 &&
			s.Backend == "rtgroup" && len(s.Cores) == 1 && s.Cores[0].CapacityPpm == 900_000 && s.HeartbeatTime != nil
	})

	// The spec changes.
	r := &v1alpha1.RTNode{}
	w.must(w.Get(t.Context(), client.ObjectKey{Name: w.node.Name}, r))
	r.Spec.Servers[0].Level = v1alpha1.LevelHigh
	w.must(w.Update(t.Context(), r))
	w.eventuallyStatus("the new level", func(s v1alpha1.RTNodeStatus) bool {
		return s.ObservedGeneration == 2 && s.Servers[0].BudgetUs == 4000 && s.Servers[0].Level == v1alpha1.LevelHigh
	})

	// The container restarts: the group of the former is no longer named.
	_, next := w.run(p, 2)
	w.eventuallyTable("the new group", func(f *fakeFastPath) bool { return f.table.Servers[0].Cgroup == next })

	// The pod goes.
	w.must(w.Delete(t.Context(), p, client.GracePeriodSeconds(0)))
	w.eventuallyTable("no server", func(f *fakeFastPath) bool { return len(f.table.Servers) == 0 })
	w.eventuallyStatus("that it has no container", func(s v1alpha1.RTNodeStatus) bool {
		return len(s.Servers) == 1 && strings.Contains(s.Servers[0].Error, "no container") && strings.HasPrefix(condition(s, v1alpha1.ConditionReady), "False SpecRefused")
	})
}

func TestWhatHappensIsReportedEverywhere(t *testing.T) {
	w := newWorld(t)
	w.fast.start("x")
	w.agent()
	p := w.pod("a")
	w.rtNode(serverFor(p))
	w.run(p, 1)
	w.eventuallyStatus("ready", func(s v1alpha1.RTNodeStatus) bool { return len(s.Servers) == 1 && s.Servers[0].BudgetUs == 2000 })
	w.fast.change(func(s *table.ServerReport) {
		s.Overruns, s.Misses, s.Raises, s.Drift, s.LevelUs, s.BudgetUs, s.LastOverrun = 5, 2, 3, 1, 4000, 4000, time.Now().UnixNano()
	})
	w.eventuallyStatus("counts and level", func(s v1alpha1.RTNodeStatus) bool {
		a := s.Servers[0]
		return a.Overruns == 5 && a.Misses == 2 && a.Drift == 1 && a.Level == v1alpha1.LevelHigh && a.LastOverrunTime != nil &&
			strings.HasPrefix(condition(s, v1alpha1.ConditionDrifted), "True BudgetsChanged")
	})
	w.eventually("Events on the pod", func() string {
		got := w.events("default", p.Name)
		for reason, text := range map[string]string{"Escalated": "Raised 3 times", "DeadlineMissed": "2 times", "Drifted": "once"} {
			if e := got[reason]; !strings.Contains(e.Message, text) || e.InvolvedObject.UID != p.UID || e.InvolvedObject.FieldPath != "spec.containers{app}" {
				return fmt.Sprintf("%s is %+v", reason, e)
			}
		}
		return ""
	})
	node, idle := &corev1.Node{}, uint64(900)
	w.eventually("annotations of the node", func() string {
		idle += 2 // ticks
		w.tree.Stat("0-1", 100, idle)
		w.must(w.Get(t.Context(), client.ObjectKey{Name: w.node.Name}, node))
		if node.Annotations[mcv1.AnnotationCPUBusy] == "false" && node.Annotations[mcv1.AnnotationCPUUsage] != "" && node.Annotations[mcv1.AnnotationCPUOver90] == "0" &&
			node.Labels[v1alpha1.LabelRTBackend] == "rtgroup" && node.Annotations[v1alpha1.AnnotationRTGuarantee] != "" {
			return ""
		}
		return fmt.Sprintf("%v %v", node.Labels, node.Annotations)
	})
}

// The fast path is killed and comes back: it gets its table again, and counters go on.
func TestAFastPathThatRestartsIsToldAgain(t *testing.T) {
	w := newWorld(t)
	w.fast.start("x")
	w.agent()
	p := w.pod("a")
	w.rtNode(serverFor(p))
	_, group := w.run(p, 1)
	w.eventuallyStatus("ready", func(s v1alpha1.RTNodeStatus) bool { return len(s.Servers) == 1 && s.Servers[0].BudgetUs == 2000 })
	w.fast.change(func(s *table.ServerReport) { s.Overruns = 5 })
	w.eventuallyStatus("5 overruns", func(s v1alpha1.RTNodeStatus) bool { return s.Servers[0].Overruns == 5 })
	told := func(reason string) {
		w.eventually("Event "+reason+" on the node", func() string {
			if got := w.events("default", w.node.Name); got[reason].Reason == "" {
				return fmt.Sprint(got)
			}
			return ""
		})
	}
	w.fast.stop()
	w.eventuallyStatus("that it is gone, and what was last said", func(s v1alpha1.RTNodeStatus) bool {
		return strings.HasPrefix(condition(s, v1alpha1.ConditionReady), "False FastPathUnreachable") && s.Servers[0].Overruns == 5 && s.Servers[0].BudgetUs == 2000
	})
	told("FastPathLost") // whoever tells looks once a second, and would miss less
	w.fast.start("y")
	w.eventuallyTable("its table", func(f *fakeFastPath) bool { return len(f.table.Servers) == 1 && f.table.Servers[0].Cgroup == group })
	w.fast.change(func(s *table.ServerReport) { s.Overruns = 2 })
	w.eventuallyStatus("7 overruns in all", func(s v1alpha1.RTNodeStatus) bool {
		return s.Servers[0].Overruns == 7 && strings.HasPrefix(condition(s, v1alpha1.ConditionReady), "True")
	})
	told("FastPathBack")
}

// An agent that restarts takes nothing away: the fast path keeps its table until the API server has been
// heard, counters go on, and what was told is not told again.
func TestAnAgentThatRestartsTakesNothingAway(t *testing.T) {
	w := newWorld(t)
	w.fast.start("x")
	stop := w.agent()
	p := w.pod("a")
	w.rtNode(serverFor(p))
	w.run(p, 1)
	w.fast.see(func(*fakeFastPath) {})
	w.eventuallyStatus("ready", func(s v1alpha1.RTNodeStatus) bool { return len(s.Servers) == 1 && s.Servers[0].BudgetUs == 2000 })
	w.fast.change(func(s *table.ServerReport) { s.Overruns, s.Raises = 5, 1 })
	w.eventuallyStatus("5 overruns", func(s v1alpha1.RTNodeStatus) bool { return s.Servers[0].Overruns == 5 })
	w.eventually("an Event", func() string {
		if w.events("default", p.Name)["Escalated"].Count == 1 {
			return ""
		}
		return "none"
	})
	stop()
	w.road.close()
	w.fast.change(func(s *table.ServerReport) { s.Overruns = 8 })
	w.agent()
	pulled := w.fast.pulls()
	w.eventually("an agent without an API server", func() string {
		if w.fast.pulls() > pulled+2 {
			return ""
		}
		return "not pulled yet"
	})
	w.eventuallyTable("the table that was there", func(f *fakeFastPath) bool { return len(f.table.Servers) == 1 && f.table.Servers[0].Cgroup != "" })
	w.road.open.Store(true)
	w.eventuallyStatus("8 overruns", func(s v1alpha1.RTNodeStatus) bool { return s.Servers[0].Overruns == 8 })
	if e := w.events("default", p.Name)["Escalated"]; e.Count != 1 {
		t.Errorf("told again: %+v", e)
	}
}

// The API server is away for an hour. Nothing waits for it, and afterwards nothing is missing.
func TestAnOutageOfTheAPIServer(t *testing.T) {
	w := newWorld(t)
	fake := clocktesting.NewFakeClock(time.Now())
	w.clock = fake
	w.fast.start("x")
	w.agent()
	step := func(seconds int) {
		t.Helper()
		for range seconds {
			pulled := w.fast.pulls()
			fake.Step(time.Second)
			for end := time.Now().Add(patience); w.fast.pulls() == pulled; {
				if time.Now().After(end) {
					t.Fatal("the fast path is no longer asked")
				}
				time.Sleep(100 * time.Microsecond)
			}
		}
	}
	w.eventually("the first report", func() string {
		if w.fast.pulls() > 0 && fake.HasWaiters() {
			return ""
		}
		return "none"
	})
	p := w.pod("a")
	w.rtNode(serverFor(p))
	w.run(p, 1)
	holds := func(what string, holds func(v1alpha1.RTNodeStatus) bool) v1alpha1.RTNodeStatus {
		t.Helper()
		return w.eventuallyStatus(what, func(s v1alpha1.RTNodeStatus) bool { step(1); return holds(s) })
	}
	holds("ready", func(s v1alpha1.RTNodeStatus) bool { return len(s.Servers) == 1 && s.Servers[0].BudgetUs == 2000 })
	w.road.close()
	begun, seconds := time.Now(), sampling.Count(900, 3600)
	for second := range seconds {
		if second == seconds/2 {
			step(1) // the report before this one has arrived when this is asked for
		}
		w.fast.change(func(s *table.ServerReport) {
			s.Overruns, s.Raises, s.Recoveries, s.LastOverrun = s.Overruns+1, s.Raises+1, s.Recoveries+1, fake.Now().UnixNano()
		})
		if second == seconds/2 { // the fast path restarts in the middle, and its counters with it
			w.fast.stop()
			w.fast.start("y")
			w.eventually("its table again", func() string {
				fake.Step(time.Second)
				out := "none"
				w.fast.see(func(f *fakeFastPath) {
					if len(f.table.Servers) == 1 && f.table.Servers[0].Cgroup != "" {
						out = ""
					}
				})
				return out
			})
			continue
		}
		step(1)
	}
	t.Logf("%d seconds took %s", seconds, time.Since(begun))
	w.road.open.Store(true)
	got := holds("what was counted", func(s v1alpha1.RTNodeStatus) bool { return s.Servers[0].Overruns == int64(seconds-1) }) // one was not reported before the restart
	if got.Servers[0].LastOverrunTime == nil || got.Servers[0].BudgetUs != 2000 {
		t.Errorf("%+v", got.Servers[0])
	}
	// One Event may have been on its way when the road was closed; it arrives, too.
	w.eventually("Events that tell of every raise", func() string {
		step(1)
		sum, messages := 0, []string{}
		for _, message := range w.messages("default", p.Name, "Escalated") {
			times := 1 // "Raised once" has no number
			_, _ = fmt.Sscanf(message, "Raised %d times", &times)
			sum, messages = sum+times, append(messages, message)
		}
		if sum == seconds-1 && len(messages) <= 3 {
			return ""
		}
		return fmt.Sprintf("%d raises in %q", sum, messages)
	})
}

// token is that of a new ServiceAccount, which may post to the given paths.
func (w *world) token(name string, paths ...string) string {
	w.Helper()
	meta := metav1.ObjectMeta{Name: w.node.Name + "-" + name, Namespace: "default"}
	w.must(w.Create(w.Context(), &corev1.ServiceAccount{ObjectMeta: meta}))
	if len(paths) > 0 {
		rule := rbacv1.PolicyRule{Verbs: []string{"post", "get"}, NonResourceURLs: paths}
		subject := rbacv1.Subject{Kind: "ServiceAccount", Name: meta.Name, Namespace: "default"}
		w.must(w.Create(w.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}))
		w.must(w.Create(w.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
			Subjects: []rbacv1.Subject{subject},
		}))
		w.must(access.Await(w.Context(), w.config, "", subject, rule)) // an agent keeps a refusal for a while
	}
	return w.tokenOf(name, frontdoor.Audience)
}

// tokenOf is one more of that ServiceAccount, for audiences; without any it is for the API server.
func (w *world) tokenOf(name string, audiences ...string) string {
	w.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: w.node.Name + "-" + name, Namespace: "default"}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	w.must(w.SubResource("token").Create(w.Context(), account, request))
	return request.Status.Token
}

func TestTheFrontDoorSetsWhatIsAdmitted(t *testing.T) {
	w := newWorld(t)
	w.fast.start("x")
	w.agent()
	p := w.pod("a")
	w.rtNode(serverFor(p))
	id, _ := w.run(p, 1)
	w.eventuallyStatus("ready", func(s v1alpha1.RTNodeStatus) bool { return len(s.Servers) == 1 && s.Servers[0].BudgetUs == 2000 })
	w.eventuallyTable("the container's ID", func(f *fakeFastPath) bool { return f.table.Servers[0].ContainerID == "containerd://"+id })
	may, mayNot := w.token("may", "/set-rt", "/status", "/metrics"), w.token("may-not")
	reader := w.tokenOf("may")
	body := func(id string, runtime int) string {
		return fmt.Sprintf(`{"container_id":"containerd://%s","period":10000,"runtime":%d,"core":"1"}`, id, runtime)
	}
	for _, c := range []struct {
		name, token, body string
		want              int
		say               string
	}{
		{"a stranger", "", body(id, 4000), http.StatusUnauthorized, ""},
		{"without a right", mayNot, body(id, 4000), http.StatusForbidden, ""},
		{"too much", may, body(id, 4001), http.StatusConflict, "2000 to 4000"},
		{"another container", may, body(strings.Repeat("f", 64), 4000), http.StatusNotFound, "no real-time container"},
		{"none", may, `{"container_id":"","period":10000,"runtime":4000}`, http.StatusBadRequest, "empty"},
	} {
		if code, text := w.call(http.MethodPost, "/set-rt", c.token, c.body); code != c.want || !strings.Contains(text, c.say) {
			t.Errorf("%s: %d %s", c.name, code, text)
		}
	}
	w.fast.see(func(f *fakeFastPath) {
		if len(f.sets) != 0 {
			t.Errorf("refused, and set all the same: %+v", f.sets)
		}
	})
	for range 2 { // a repetition is the same again
		if code, text := w.call(http.MethodPost, "/set-rt", may, body(id, 4000)); code != http.StatusOK || !strings.Contains(text, `"runtime":4000`) {
			t.Errorf("admitted: %d %s", code, text)
		}
	}
	w.fast.see(func(f *fakeFastPath) {
		if len(f.sets) != 2 || f.sets[0].Server != string(p.UID)+"/app" || f.sets[0].RuntimeUs != 4000 || *f.sets[0].Core != 1 {
			t.Errorf("set: %+v", f.sets)
		}
	})
	if code, text := w.call(http.MethodGet, "/status", reader, ""); code != http.StatusOK || !strings.Contains(text, `"backend":"rtgroup"`) {
		t.Errorf("status: %d %s", code, text)
	}
	if code, text := w.call(http.MethodGet, "/metrics", reader, ""); code != http.StatusOK || !strings.Contains(text, `mainspring_fastpath_up 1`) || !strings.Contains(text, `mainspring_escalations_total{result="denied"} 0`) {
		t.Errorf("metrics: %d %s", code, text)
	}
	if code, text := w.call(http.MethodGet, "/readyz", "", ""); code != http.StatusOK {
		t.Errorf("readiness: %d %s", code, text)
	}
	w.fast.stop()
	w.eventually("that it is not ready", func() string {
		if code, _ := w.call(http.MethodGet, "/readyz", "", ""); code == http.StatusServiceUnavailable {
			return ""
		}
		return "still ready"
	})
	if code, text := w.call(http.MethodPost, "/set-rt", may, body(id, 4000)); code != http.StatusServiceUnavailable {
		t.Errorf("without a fast path: %d %s", code, text)
	}
}
