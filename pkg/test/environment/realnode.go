package environment

import (
	"context"
	"encoding/json"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions

	"github.com/mainspring-rt/mainspring/pkg/localnode"
	"github.com/mainspring-rt/mainspring/pkg/localnode/image"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// LoadImage is what the containers of a real node run: the program of test/suites/node/load.
const LoadImage = "mainspring.local/load:test"

// RealNodeName is the name of the real node.
const RealNodeName = "real"

// nodeGranularity is more than a kernel whose tick is 4 ms may take to notice the end of a budget.
const nodeGranularity = "5ms"

const (
	loadArchive     = "load.tar"
	agentProgram    = "agent"
	fastPathProgram = "fastpath"
)

// PrepareNode is Prepare for suites with a real node.
func PrepareNode(ctx context.Context) []byte {
	GinkgoHelper()
	ready := build(ctx, localnode.Tools(), controllerProgram, agentProgram, fastPathProgram)
	load := image.Image{Reference: LoadImage, Program: ready.program("load")}
	Expect(image.BuildProgram(ctx, toolchain.MainModule+"/test/suites/node/load", load.Program)).To(Succeed())
	Expect(load.Save(ready.program(loadArchive))).To(Succeed())
	return ready.encode()
}

// StartNode brings up a control plane with the charts and the controller, as StartRealtime does, and one
// real node in place of simulated ones.
func StartNode(data []byte) *Environment {
	GinkgoHelper()
	root, err := toolchain.FindRoot(".")
	Expect(err).NotTo(HaveOccurred())
	env := StartRealtime(data, filepath.Join(root, "test", "suites", "realtime", "testdata", "catalogue.yaml"))
	env.defaults = merge(env.defaults, "--rt-budget-granularity="+nodeGranularity)
	var ready prepared
	Expect(json.Unmarshal(data, &ready)).To(Succeed())
	env.Node, err = localnode.Start(env, env.Plane, localnode.Options{
		Name: RealNodeName, Bin: ready.Tools, Images: []string{ready.program(loadArchive)}, Progress: GinkgoWriter,
		Logs: env.dir,
	})
	Expect(err).NotTo(HaveOccurred())
	env.NodeAgent = newNodeAgent(env, ready, filepath.Join(env.dir, "node"))
	return env
}
