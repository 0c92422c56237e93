package environment

import (
	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions

	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/test/timing"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// ExpectBarePlane starts one more control plane, of API server and etcd only, without any of our
// definitions. It ends with the spec.
func (env *Environment) ExpectBarePlane() *localplane.Plane {
	GinkgoHelper()
	return env.expectPlane(localplane.Options{})
}

func (env *Environment) expectPlane(o localplane.Options) *localplane.Plane {
	GinkgoHelper()
	var err error
	o.Bin, err = toolchain.Ensure(env, GinkgoWriter, o.Tools()...)
	Expect(err).NotTo(HaveOccurred())
	ended := timing.Start(timing.ControlPlane, GinkgoT().Name())
	plane, err := localplane.Start(env, o)
	ended()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(plane.Stop()).To(Succeed()) })
	return plane
}
