package migration_test

import (
	"net/http/httptest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/examples/policy-engine/engine"
	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test"
)

// policyFor selects the pods of a workload.
func policyFor(workload string, change func(*mckubev1alpha1.MigrationPolicySpec)) *mckubev1alpha1.MigrationPolicy {
	p := &mckubev1alpha1.MigrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: workload}}
	p.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{test.Label: workload}}
	change(&p.Spec)
	return p
}

// governed applies a policy for the length of a spec, and waits until it is known to be usable.
func governed(p *mckubev1alpha1.MigrationPolicy) {
	GinkgoHelper()
	env.ExpectApplied(p)
	DeferCleanup(func() { env.ExpectDeleted(p) })
	Eventually(func(g Gomega) {
		g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(p), p)).To(Succeed())
		g.Expect(meta.IsStatusConditionTrue(p.Status.Conditions, "Ready")).To(BeTrue())
	}).Should(Succeed())
}

var _ = Describe("A MigrationPolicy", func() {
	It("denies by a rule, which the status names, and the pod stays", func() {
		nodes := twoNodes()
		governed(policyFor("control", func(s *mckubev1alpha1.MigrationPolicySpec) {
			s.Rules = []mckubev1alpha1.MigrationRule{{
				Name: "safety", Expression: `mckube.spec.criticality == "High" && target.metadata.name != source.metadata.name`, Action: mckubev1alpha1.RuleDeny, Message: "safety work stays",
			}}
		}))
		place := replicated(test.McKube("control", 40, test.Critical("High")), 1)[0]
		began := env.Now()
		m := test.PodMigration("move", place.Pod, test.To(other(nodes, place.Pod)))
		refused(m, "safety work stays")
		decision := eventuallyEnds(m, mckubev1alpha1.MigrationRefused).Status.Decision
		Expect(decision).NotTo(BeNil())
		Expect(*decision).To(And(HaveField("Policy", "control"), HaveField("Rule", "safety"), HaveField("Allowed", false)))
		undisturbed(began, place.Pod)
	})

	It("with a mistake is refused when it is written", func() {
		err := env.Client.Create(env, policyFor("control", func(s *mckubev1alpha1.MigrationPolicySpec) {
			s.Rules = []mckubev1alpha1.MigrationRule{{Name: "r", Expression: `pod.metadata.lables["x"] == "y"`, Action: mckubev1alpha1.RuleDeny}}
		}))
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(And(ContainSubstring("spec.rules[0].expression"), ContainSubstring("line 1, column 13"), ContainSubstring("did you mean labels?"))))
	})

	It("asks its engine over HTTP; without an answer only what protects goes on", func() {
		nodes := twoNodes()
		server := httptest.NewServer(engine.Default.Handler())
		defer server.Close()
		governed(policyFor("control", func(s *mckubev1alpha1.MigrationPolicySpec) {
			s.PolicyEngine = &mckubev1alpha1.PolicyEngine{URL: server.URL, Timeout: &metav1.Duration{Duration: 10 * time.Second}}
		}))
		place := replicated(test.McKube("control", 40, test.Critical("High")), 1)[0]
		asked := test.PodMigration("asked", place.Pod, test.To(other(nodes, place.Pod)))
		refused(asked, "safety work is moved only to be protected")
		Expect(eventuallyEnds(asked, mckubev1alpha1.MigrationRefused).Status.Decision.Engine).To(Equal("Deny"))
		server.Close()
		unanswered := test.PodMigration("unanswered", place.Pod, test.To(other(nodes, place.Pod)))
		unanswered.Spec.Trigger = mckubev1alpha1.TriggerPower
		refused(unanswered, "failurePolicy is Deny")
		Expect(eventuallyEnds(unanswered, mckubev1alpha1.MigrationRefused).Status.Decision.Engine).To(Equal("ErrorClosed"))
		protective := test.PodMigration("protective", place.Pod, test.To(other(nodes, place.Pod)))
		protective.Spec.Trigger = mckubev1alpha1.TriggerRepair
		Expect(env.Client.Create(env, protective.DeepCopy())).To(MatchError(ContainSubstring("trigger Repair is the controller's to say")), "anybody else")
		Expect(env.AsController().Create(env, protective)).To(Succeed())
		Expect(eventuallyEnds(protective, mckubev1alpha1.MigrationSucceeded).Status.Decision.Engine).To(Equal("ErrorOpen"))
	})
})
