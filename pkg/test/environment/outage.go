package environment

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// restartBackoff is the least time between two starts of a container that ends by itself, as of a
// kubelet.
const restartBackoff = 10 * time.Second

// ExpectOutage takes the API server away for the time. The controller is run as a Deployment runs
// it: when it ends by itself it is started again. It returns how often that was.
func (env *Environment) ExpectOutage(lasting time.Duration) (restarts int) {
	GinkgoHelper()
	env.outage = true
	Expect(env.Plane.StopAPIServer(env)).To(Succeed())
	Consistently(func(g Gomega) {
		g.Expect(env.apiAnswers()).NotTo(Succeed(), "the API server is away")
		restarts += env.restartEnded()
	}).WithTimeout(lasting).WithPolling(pollEvery).Should(Succeed())
	Expect(env.Plane.StartAPIServer(env)).To(Succeed())
	Eventually(func(g Gomega) {
		restarts += env.restartEnded()
		g.Expect(env.Controller.probe(env)).To(Succeed())
	}).Should(Succeed(), "the controller should be ready again")
	return restarts
}

func (env *Environment) apiAnswers() error {
	ctx, cancel := context.WithTimeout(env, time.Second)
	defer cancel()
	return env.Client.List(ctx, &karpenterv1.NodePoolList{}, client.Limit(1))
}

// restartEnded starts the controller again if it has ended by itself, without waiting for it to be
// ready, and returns how often it did: 0 or 1.
func (env *Environment) restartEnded() int {
	GinkgoHelper()
	if env.Controller.Running() || time.Since(env.Controller.run.began) < restartBackoff {
		return 0
	}
	env.Controller.run.expected.Store(true)
	Expect(env.Controller.launch(env.Controller.flags)).To(Succeed())
	return 1
}

// WithoutAPIServer does something while the API server is away. The controller is run as in ExpectOutage.
func (env *Environment) WithoutAPIServer(do func()) {
	GinkgoHelper()
	env.outage = true
	Expect(env.Plane.StopAPIServer(env)).To(Succeed())
	defer func() {
		GinkgoHelper()
		Expect(env.Plane.StartAPIServer(env)).To(Succeed())
		Eventually(func(g Gomega) {
			env.restartEnded()
			g.Expect(env.Controller.probe(env)).To(Succeed())
		}).Should(Succeed(), "the controller should be ready again")
	}()
	do()
}
