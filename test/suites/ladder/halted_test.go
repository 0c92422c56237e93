package ladder_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// halting is the policy that docs/orchestration.md has operators apply to have no more actions asked for, and its binding.
func halting() (*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding) {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "orchestration.md"))
	Expect(err).NotTo(HaveOccurred())
	_, section, found := strings.Cut(string(text), "\n## To halt it\n")
	Expect(found).To(BeTrue(), "docs/orchestration.md should say how to halt actions")
	block := regexp.MustCompile(`(?m)(^ {7}.*\n)+`).FindString(section)
	documents := strings.Split(regexp.MustCompile(`(?m)^ {7}`).ReplaceAllString(block, ""), "---\n")
	Expect(documents).To(HaveLen(2))
	policy, binding := &admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}
	Expect(yaml.UnmarshalStrict([]byte(documents[0]), policy)).To(Succeed())
	Expect(yaml.UnmarshalStrict([]byte(documents[1]), binding)).To(Succeed())
	return policy, binding
}

// anAction is one that the policy forbids, whoever asks for it.
func anAction(pod *corev1.Pod) *mckubev1alpha1.RTAction {
	a := &mckubev1alpha1.RTAction{}
	a.Name, a.Spec.Kind, a.Spec.Reason, a.Spec.Cause = "example", "Preempt", "ByHand", "by hand"
	a.Spec.Attempt, a.Spec.Beneficiary = 1, mckubev1alpha1.ActionBeneficiary{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Criticality: "High"}
	a.Spec.Pods = []mckubev1alpha1.ActionPod{{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}}
	a.Spec.Timeout = metav1.Duration{Duration: time.Minute}
	return a
}

var _ = Describe("An operator who halts all actions", func() {
	It("by the policy of the documentation sees who goes without, in its words, and has them begin again by deleting it", func() {
		env.ExpectApplied(twoCores())
		control, lesser, _ := besideRoom("lesser")
		policy, binding := halting()
		words := policy.Spec.Validations[0].Message
		env.Forbids(words)
		env.ExpectApplied(policy, binding)
		DeferCleanup(func() { env.ExpectDeleted(binding, policy) })
		Eventually(func() error { return env.Client.Create(env, anAction(lesser.Pod), client.DryRunAll) }).
			Should(MatchError(ContainSubstring(words)), "the policy should be in force")
		began := env.Now()

		play(control, crowded)
		env.EventuallyEvent(control.Pod, "PressureUnanswered", words)
		eventuallyPressed(control.Node)
		Expect(actions(env.History())).To(BeEmpty())
		undisturbed(began, control.Pod, lesser.Pod)

		env.ExpectDeleted(binding, policy)
		eventuallyAnswered("Migrate")
		eventuallyOver()
		undisturbed(began, control.Pod)
	})
})
