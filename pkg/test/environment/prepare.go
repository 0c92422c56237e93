package environment

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions

	"github.com/mainspring-rt/mainspring/pkg/test/environment/programs"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// buildTimeout bounds building the tools on a machine that has never built them, and whose cores test other things meanwhile. It is less than the hour
// that hack/test gives a suite, so that what was being built is told.
const buildTimeout = 35 * time.Minute

// prepared is what one process builds for all.
type prepared struct {
	Tools    toolchain.Paths
	Programs string // directory of what this suite has built
	Prebuilt string // directory of what the run has built for all suites; empty: nothing
}

func (p prepared) program(name string) string {
	if p.Prebuilt != "" && slices.Contains(programs.Shipped(), name) {
		return filepath.Join(p.Prebuilt, name)
	}
	return filepath.Join(p.Programs, name)
}

// Prepare builds what every process of the suite runs. Ginkgo calls it in the first process and
// hands what it returns to Start in each.
func Prepare(ctx context.Context) []byte {
	GinkgoHelper()
	return build(ctx, nil, programs.All()...).encode()
}

// build builds the control plane with further tools, and the programs that the run has not built.
func build(ctx context.Context, tools []toolchain.Tool, names ...string) prepared {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	paths, err := toolchain.Ensure(ctx, GinkgoWriter, append(tools, toolchain.Etcd, toolchain.KubeAPIServer,
		toolchain.KubeControllerManager, toolchain.KubeScheduler, toolchain.Kwok, toolchain.Kubectl)...)
	Expect(err).NotTo(HaveOccurred())
	dir, err := os.MkdirTemp("", "mainspring-programs-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, dir)
	ready := prepared{Tools: paths, Programs: dir, Prebuilt: programs.Prebuilt()}
	if ready.Prebuilt == "" {
		Expect(programs.Build(ctx, dir, names...)).To(Succeed())
	}
	return ready
}

// encode is for Ginkgo, which hands bytes to the other processes.
func (p prepared) encode() []byte {
	GinkgoHelper()
	data, err := json.Marshal(p)
	Expect(err).NotTo(HaveOccurred())
	return data
}
