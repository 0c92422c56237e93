package environment

import (
	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
	"github.com/samber/lo"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/charts"
	"github.com/mainspring-rt/mainspring/pkg/hollow"
)

// ExpectAgents makes sure that the agents of the simulated nodes run: those of the suite, or, where
// the suite has none, some that end with the spec.
func (env *Environment) ExpectAgents() {
	GinkgoHelper()
	if env.Agents.Running() {
		return
	}
	Expect(env.Agents.Crash()).To(Succeed())
	Expect(env.Agents.Start(env, append(env.agentFlags, "--kubeconfig="+env.Agents.kubeconfig)...)).To(Succeed())
	if !env.realtime() {
		DeferCleanup(func() { Expect(env.Agents.Stop()).To(Succeed()) })
	}
}

// realtime tells whether the suite is about real-time admission.
func (env *Environment) realtime() bool { return env.service != nil }

// DeviceClass is the class of cores as the chart installs it.
func DeviceClass() *resourcev1.DeviceClass {
	GinkgoHelper()
	class, err := charts.DeviceClass()
	Expect(err).NotTo(HaveOccurred())
	return class
}

// ExpectScript has the agents play a script to a Node, or to the containers of a Pod, from now on.
func (env *Environment) ExpectScript(o client.Object, script string) {
	GinkgoHelper()
	ExpectChanged(env, o, func(o client.Object) {
		o.SetAnnotations(lo.Assign(o.GetAnnotations(), map[string]string{hollow.AnnotationScript: script}))
	})
}
