package pdb_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/orchestration/pdb"
)

// Which pods may go together is what Overdrawn says of each budget, except that no pod may go that several budgets cover.
func TestLeaveIsWhatBudgetsSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var budgets []policyv1.PodDisruptionBudget
		for i := range rapid.IntRange(0, 3).Draw(t, "budgets") {
			budgets = append(budgets, budget(func(b *policyv1.PodDisruptionBudget) {
				b.Name, b.Spec.Selector.MatchLabels = fmt.Sprint("b", i), map[string]string{fmt.Sprint("b", i): "x"}
				b.Namespace = rapid.SampledFrom([]string{"default", "other"}).Draw(t, "namespace")
				b.Status.DisruptionsAllowed = rapid.Int32Range(0, 2).Draw(t, "allowed")
				b.Status.CurrentHealthy = rapid.Int32Range(0, 2).Draw(t, "healthy")
			}))
		}
		var pods []*corev1.Pod
		var uids []types.UID
		for i := range rapid.IntRange(0, 5).Draw(t, "pods") {
			p := pod(rapid.SampledFrom([]corev1.PodPhase{corev1.PodRunning, corev1.PodPending}).Draw(t, "phase"), rapid.Bool().Draw(t, "ready"))
			p.UID, p.Labels = types.UID(fmt.Sprint("p", i)), map[string]string{}
			for _, b := range budgets {
				if rapid.Bool().Draw(t, "covers") {
					p.Labels[b.Name] = "x"
				}
			}
			pods, uids = append(pods, p), append(uids, p.UID)
		}
		leave := pdb.NewIndex(budgets).Leave(pods...)
		if leave.Empty() && leave.Kept(uids...) != "" {
			t.Fatal("it is empty, and keeps somebody")
		}
		kept := false
		for i := range budgets {
			kept = kept || len(pdb.Overdrawn(&budgets[i], pods)) > 0
		}
		for _, p := range pods {
			several := len(pdb.Covering(budgets, p)) > 1
			if barred := leave.Barred(p.UID) != ""; barred != several {
				t.Fatalf("pod %s is barred %t, though several budgets cover it is %t", p.UID, barred, several)
			}
			kept = kept || several
		}
		if why := leave.Kept(uids...); (why != "") != kept {
			t.Fatalf("they are kept %t, and it says %q", kept, why)
		}
	})
}

func TestLeaveInWords(t *testing.T) {
	one, two := pod(corev1.PodRunning, true), pod(corev1.PodRunning, true)
	one.UID, two.UID = "1", "2"
	second := budget(func(b *policyv1.PodDisruptionBudget) { b.Name, b.Spec.Selector = "c", &metav1.LabelSelector{} })
	for want, budgets := range map[string][]policyv1.PodDisruptionBudget{
		"": nil, "PodDisruptionBudget b allows 1 disruptions now; 2 are needed": {budget(nil)},
		"PodDisruptionBudgets b, c cover it, and the API server evicts no pod that several cover": {budget(nil), second},
	} {
		if got := pdb.NewIndex(budgets).Leave(one, two).Kept("1", "2", "another"); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
	if got := (pdb.Leave{}).Kept("1"); got != "" || !(pdb.Leave{}).Empty() || pdb.NewIndex([]policyv1.PodDisruptionBudget{budget(nil)}).Leave(one).Empty() {
		t.Errorf("without budgets: %q, or it is not empty, or one with a budget is", got)
	}
}
