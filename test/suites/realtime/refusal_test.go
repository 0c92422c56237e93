package realtime_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/test"
)

var _ = Describe("Refusals", func() {
	It("of McKubes name the field, the value or the bound", func() {
		settings := func(change func(*mcoperatorv1.RTSettings)) test.McKubeChange {
			return func(m *mcoperatorv1.McKube) { change(m.Spec.RTSettings) }
		}
		for _, refused := range []struct {
			change test.McKubeChange
			texts  []string
		}{
			{settings(func(r *mcoperatorv1.RTSettings) { r.RuntimeLow = 60_000 }), []string{"runtime_low", "runtime_hi"}},
			{settings(func(r *mcoperatorv1.RTSettings) { r.RuntimeHi = 96_000 }), []string{"runtime_hi", "95 %"}},
			{settings(func(r *mcoperatorv1.RTSettings) { r.Period = 50 }), []string{"rtSettings.period", "100"}},
			{settings(func(r *mcoperatorv1.RTSettings) { r.Deadline = new(int64(200_000)) }), []string{"deadline", "period"}},
			{settings(func(r *mcoperatorv1.RTSettings) { r.Levels = []mcoperatorv1.Level{{Name: "mid", Runtime: 90_000}} }), []string{"levels", "between runtime_low and runtime_hi"}},
			{test.Prefers("3-2"), []string{"core", "backwards"}},
			{test.Prefers("two"), []string{"core", "cpuset list"}},
			{test.Critical("Urgent"), []string{"criticality", "Urgent"}},
			{func(m *mcoperatorv1.McKube) { m.Spec.Selector = test.Selector("x") }, []string{"exactly one of podname and selector"}},
			{func(m *mcoperatorv1.McKube) { m.Spec.Podname = "" }, []string{"exactly one of podname and selector"}},
		} {
			env.ExpectDenied(test.McKube("wrong", 30, refused.change), refused.texts...)
		}
	})

	It("of pods name the McKube and what is wrong with it for this pod", func() {
		env.ExpectApplied(
			test.McKube("typo", 30, test.GovernsContainer("ap")),
			test.McKube("unnamed", 30),
		)
		env.ExpectDenied(test.RTPod("typo"), "typo", `"ap"`)
		env.ExpectDenied(test.RTPod("unnamed", test.WithContainer("side")), "unnamed", "container")
	})

	It("leave nothing behind, nor does a dry run", func() {
		m := test.McKube("dry", 30)
		Expect(env.Client.Create(env, m.DeepCopy(), client.DryRunAll)).To(Succeed())
		env.ExpectApplied(twoCores(), test.McKube("wet", 30))
		Eventually(func() []resourcev1.ResourceClaimTemplate { return templates() }).Should(HaveLen(1), "of the McKube that is there")
		began := env.Now()
		pod := test.RTPod("wet")
		Eventually(func() error { return env.Client.Create(env, pod, client.DryRunAll) }).Should(Succeed())
		Expect(pod.Spec.ResourceClaims).To(HaveLen(1), "what would have been is shown")
		env.ExpectApplied(test.Pod("other", "100m"))
		env.EventuallyPodsBound("other", 1)
		for _, v := range env.History().Since(began).Versions() {
			if p, ok := v.Object.(*corev1.Pod); ok {
				Expect(p.Name).To(Equal("other"))
			}
			Expect(v.Object).NotTo(BeAssignableToTypeOf(&resourcev1.ResourceClaim{}))
		}
		Expect(templates()).To(HaveLen(1))
	})
})

// templates lists the ResourceClaimTemplates.
func templates() []resourcev1.ResourceClaimTemplate {
	GinkgoHelper()
	list := &resourcev1.ResourceClaimTemplateList{}
	Expect(env.Client.List(env, list)).To(Succeed())
	return list.Items
}
