package orchestration_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

func TestWithdrawing(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	s.conduct["Runs"] = conduct{hangs: true}
	p := s.spawn()
	s.turns(p, 1)
	waits, runs := s.submit(p, s.request(rules.Rearrange, "Waits", "n1")), s.submit(p, s.request(rules.Preempt, "Runs", "n1", s.pod("a1")))
	s.must(p.queue.Withdraw(t.Context(), waits.Name, "calm"))
	s.turns(p, 2)
	s.must(p.queue.Withdraw(t.Context(), runs.Name, "calm"))
	s.is("Runs RollingBack", "Waits Withdrawn")
	s.turns(p, 2)
	s.is("Runs RolledBack", "Waits Withdrawn")
	s.must(p.queue.Withdraw(t.Context(), runs.Name, "calm"))
	s.must(p.queue.Withdraw(t.Context(), "gone", "calm"))
	s.ends()
}

// A user deletes an action: it goes once nothing of it is under way.
func TestDeletingAnActionWithdrawsIt(t *testing.T) {
	for phase, turns := range map[string]int{"new": 0, "Waiting": 1, "Running": 1, "RollingBack": 1, "Succeeded": 5} {
		t.Run(phase, func(t *testing.T) {
			s := newStage(t)
			s.node("n1")
			s.budget("web", "a", 1)
			if phase != "Succeeded" {
				s.conduct["NoCore"] = conduct{hangs: true}
			}
			if phase == "Waiting" {
				s.allow("web", 0)
			}
			if phase == "RollingBack" {
				s.conduct["NoCore"] = conduct{givesUp: true, clings: true}
				turns = 3
			}
			p := s.spawn()
			s.turns(p, 1)
			pod := s.pod("a1")
			ticket := s.submit(p, s.request(rules.Preempt, "NoCore", "n1", pod))
			s.turns(p, turns)
			if got := s.action(ticket.Name); string(got.Status.Phase) != phase && phase != "new" {
				t.Fatalf("it is %s", got.Status.Phase)
			}
			s.must(s.api.Delete(t.Context(), s.action(ticket.Name)))
			if phase == "RollingBack" {
				s.turns(p, 3)
				s.is("NoCore RollingBack")
				s.conduct["NoCore"] = conduct{givesUp: true}
			}
			s.turns(p, 4)
			s.is()
			s.ends()
			if again := s.submit(p, s.request(rules.Preempt, "NoCore", "n1", pod)); again.Name != ticket.Name || !again.Phase.Over() {
				t.Errorf("asked again for what was deleted: %+v", again)
			}
			if len(orchestration.Names(p.queue)) > 0 {
				t.Errorf("the queue knows of %v", orchestration.Names(p.queue))
			}
			for what, by := range s.has {
				if len(by) > 0 {
					t.Errorf("%s is in the hands of %v", what, by)
				}
			}
		})
	}
}

func TestActionsOfUsers(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	p := s.spawn()
	s.turns(p, 1)
	pod := s.pod("a1")
	mine := func(name string, uid string) {
		s.must(s.api.Create(t.Context(), &v1alpha1.RTAction{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.RTActionSpec{
				Kind: "Preempt", Reason: "Mine", Cause: "me", Timeout: metav1.Duration{Duration: time.Minute}, Node: "n1",
				Beneficiary: v1alpha1.ActionBeneficiary{Kind: "Node", Name: "n1"},
				Pods:        []v1alpha1.ActionPod{{Namespace: s.namespace, Name: "a1", UID: pod.UID + "" + pod.UID[:len(uid)]}},
			},
		}))
	}
	mine("mine", "")
	s.turns(p, 5)
	s.is("Mine Succeeded")
	mine("stale", "x")
	s.turns(p, 2)
	s.is("Mine Succeeded", "Mine Refused")
	if got := s.action("stale").Status.Message; got != "Its pods are gone" {
		t.Errorf("message: %s", got)
	}
}

// What users made without the finalizer does not vanish while it runs, wherever a process dies that starts it.
func TestActionsOfUsersAreUndoneBeforeTheyGo(t *testing.T) {
	for _, f := range []fate{none, dies, losesRequest, losesReply} {
		for at := 1; at <= 3; at++ {
			s := newStage(t)
			s.node("n1")
			s.conduct["Mine"] = conduct{hangs: true}
			p := s.spawn()
			s.turns(p, 1)
			pod := s.pod("a1")
			s.must(s.api.Create(t.Context(), &v1alpha1.RTAction{
				ObjectMeta: metav1.ObjectMeta{Name: "mine"},
				Spec: v1alpha1.RTActionSpec{
					Kind: "Preempt", Reason: "Mine", Cause: "me", Timeout: metav1.Duration{Duration: time.Minute}, Node: "n1",
					Beneficiary: v1alpha1.ActionBeneficiary{Kind: "Node", Name: "n1"}, Pods: []v1alpha1.ActionPod{pod},
				},
			}))
			p.fate, p.at = f, p.points+at
			for range 4 {
				_ = p.turn() // what befalls it
				if s.clock.Step(time.Second); p.dead {
					p = s.spawn()
				}
			}
			s.is("Mine Running")
			s.must(s.api.Delete(t.Context(), s.action("mine")))
			s.turns(p, 6)
			s.is()
			s.ends()
			for what, by := range s.has {
				if len(by) > 0 {
					t.Errorf("%s %d: %s is in the hands of %v", f, at, what, by)
				}
			}
			s.leave()
		}
	}
}

func TestNothingIsDoneToOrForWhatIsGone(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	s.budget("web", "a", 0)
	p := s.spawn()
	s.turns(p, 1)
	pod, beneficiary := s.pod("a1"), s.pod("b1")
	s.submit(p, s.request(rules.Preempt, "Pod", "n1", pod))
	s.submit(p, s.request(rules.Rearrange, "Node", "n7"))
	r := s.request(rules.Preempt, "Whom", "n1", s.pod("a2"))
	r.Beneficiary = v1alpha1.ActionBeneficiary{Kind: "Pod", Namespace: beneficiary.Namespace, Name: beneficiary.Name, UID: beneficiary.UID}
	s.submit(p, r)
	s.turns(p, 1)
	s.is("Node Refused", "Pod Waiting for PodDisruptionBudget", "Whom Waiting for PodDisruptionBudget")
	for _, name := range []string{"a1", "b1"} {
		s.must(s.api.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}, client.GracePeriodSeconds(0)))
	}
	s.turns(p, 1)
	s.is("Node Refused", "Pod Refused", "Whom Withdrawn")
}

func TestHowLongActionsAreKept(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	p := s.spawn()
	s.turns(p, 1)
	r := s.request(rules.Rearrange, "Once", "n1")
	s.submit(p, r)
	s.turns(p, 4)
	s.is("Once Succeeded")
	s.clock.Step(orchestration.Retention - time.Minute)
	s.submit(p, r) // its cause still matters
	s.clock.Step(orchestration.Retention - time.Minute)
	s.turns(p, 1)
	s.is("Once Succeeded")
	s.clock.Step(time.Minute)
	s.turns(p, 1)
	s.is()
}
