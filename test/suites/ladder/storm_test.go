package ladder_test

import (
	"errors"
	"fmt"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/hollow"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

// A storm of 100 pods: the one of 2,000 is that of `make bench-ladder`, and takes longer than a suite may.
var _ = Describe("A storm", func() {
	It("in which a third of the pods overrun at once settles without flapping: nobody is moved twice, and nobody critical at all but between cores", Label("heavy"), SpecPriority(2), func() {
		const machines = 5
		// Twenty fill a machine by their requests. kube-scheduler fills core after core, six containers each; five on each of
		// the four are few enough.
		env.ExpectApplied(test.RTNodePool("four", "four-cores", test.Budgets(test.Budget("1"))))
		var overrunners []environment.Place
		for _, w := range []struct {
			name        string
			criticality mcoperatorv1.Criticality
			replicas    int32
		}{{"control", high, 20}, {"vision", middle, 14}, {"batch", low, 66}} {
			m := test.McKube(w.name, 14, test.Critical(w.criticality), test.GovernsWorkload(w.name))
			env.ExpectApplied(m, test.RTDeployment(w.name, w.replicas, test.Requests(corev1.ResourceCPU, "240m")))
		}
		for name, n := range map[string]int{"control": 20, "vision": 14} {
			overrunners = append(overrunners, env.EventuallyPlaced(name, n)...)
		}
		env.EventuallyPlaced("batch", 66)
		env.EventuallyNodes(machines)
		eventuallyOver() // so many newcomers at once may have been a pressure themselves
		began := env.Now()
		playAtOnce(overrunners, "0s overrun-while-crowded 78")
		Eventually(func() int { return len(answers(env.Recorded())) }).Should(BeNumerically(">=", machines))
		eventuallyOver()

		h := env.History().Since(began)
		Expect(overrunning(h.Last())).To(BeEmpty())
		// On a busy machine the agents' counts come in lumps, with more than the window between two of them: a pressure that goes on looks gone.
		for node, times := range lo.CountValuesBy(h.Events("PressureReturned", ""), func(e *corev1.Event) string { return e.InvolvedObject.Name }) {
			Expect(times).To(BeNumerically("<=", 1), "the pressure of %s flaps", node)
		}
		Expect(h.Disrupted()).To(BeEmpty())
		moves := lo.CountValues(answers(env.History()))
		Expect(moves["Rearrange"]).To(BeNumerically(">=", machines))
		Expect(moves["Migrate"]+moves["Preempt"]).To(BeNumerically("<=", machines), "the machines have nearly all of the room themselves")
		var critical []*corev1.Pod
		for _, p := range overrunners {
			if p.Pod.Labels[test.Label] == "control" {
				critical = append(critical, p.Pod)
			}
		}
		undisturbed(began, critical...)
	})
})

// playAtOnce has the agents play a script to all places' containers.
func playAtOnce(places []environment.Place, script string) {
	GinkgoHelper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, hollow.AnnotationScript, script))
	failed := make([]error, len(places))
	var all sync.WaitGroup
	for i, p := range places {
		all.Go(func() { failed[i] = env.Client.Patch(env, p.Pod.DeepCopy(), patch) })
	}
	all.Wait()
	Expect(errors.Join(failed...)).To(Succeed())
}

// overrunning are the cores, of those with somebody who overruns, on which more is promised than he bears.
func overrunning(s history.State) []string {
	const bears = 780_000
	var list []string
	for name, node := range s.RTNodes {
		hurt := map[int32]bool{}
		for _, server := range node.Spec.Servers {
			if server.Criticality != string(low) {
				hurt[server.Cores[0]] = true
			}
		}
		for _, core := range node.Status.Cores {
			if hurt[core.ID] && core.ReservedPpm > bears {
				list = append(list, fmt.Sprintf("core %d of %s: %d ppm", core.ID, name, core.ReservedPpm))
			}
		}
	}
	return list
}
