package environment

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/chart"
	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/localnode"
	"github.com/mainspring-rt/mainspring/pkg/localnode/image"
	"github.com/mainspring-rt/mainspring/pkg/test/environment/programs"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// LoadImage is what the containers of a real node run: the program of test/suites/node/load.
const LoadImage = "mainspring.local/load:test"

// FirstNodeImage is of the same program, and only the first real node has it.
const FirstNodeImage = "mainspring.local/load-here:test"

// UnlikeImage is of the same program on the first real node, and of another one on the second, as where a tag was pushed anew.
const UnlikeImage = "mainspring.local/load-unlike:test"

// RealNodeName is the name of the real node, SecondNodeName that of a further one.
const (
	RealNodeName   = "real"
	SecondNodeName = "second"
)

// SetterName is the ServiceAccount in namespace default that the chart lets POST /set-rt.
const SetterName = "setter"

// nodeGranularity is more than a kernel whose tick is 4 ms may take to notice the end of a budget.
const nodeGranularity = "5ms"

const (
	loadArchive     = "load.tar"
	hereArchive     = "load-here.tar"
	unlikeArchive   = "load-unlike.tar"
	otherArchive    = "load-other.tar"
	agentArchive    = "agent.tar"
	agentImage      = "mainspring.local/agent:test"
	agentProgram    = programs.Agent
	fastPathProgram = programs.FastPath
)

// PrepareNode is Prepare for suites with a real node.
func PrepareNode(ctx context.Context) []byte {
	GinkgoHelper()
	ready := build(ctx, programs.NodeTools(), programs.All()...)
	load := ready.program("load")
	built := map[string]string{load: "/test/suites/node/load"}
	if ready.Prebuilt == "" { // those of images need no library, and so no race detector
		built[ready.program(agentProgram)], built[ready.program(fastPathProgram)] = "/cmd/agent", "/cmd/fastpath"
	}
	for program, pkg := range built {
		Expect(image.BuildProgram(ctx, toolchain.MainModule+pkg, program)).To(Succeed())
	}
	for archive, i := range map[string]image.Image{
		loadArchive:   {Reference: LoadImage, Programs: []string{load}},
		hereArchive:   {Reference: FirstNodeImage, Programs: []string{load, ready.program(fastPathProgram)}},
		unlikeArchive: {Reference: UnlikeImage, Programs: []string{longer(load)}}, // so that the second node has it by no other name
		otherArchive:  {Reference: UnlikeImage, Programs: []string{load}},
		agentArchive:  {Reference: agentImage, Programs: []string{ready.program(agentProgram), ready.program(fastPathProgram)}},
	} {
		Expect(i.Save(ready.program(archive))).To(Succeed())
	}
	return ready.encode()
}

// longer is a program of the same name that does the same, and whose file has a byte more.
func longer(program string) string {
	GinkgoHelper()
	content, err := os.ReadFile(program)
	Expect(err).NotTo(HaveOccurred())
	dir := filepath.Join(filepath.Dir(program), "longer")
	Expect(os.MkdirAll(dir, 0o700)).To(Succeed())
	out := filepath.Join(dir, filepath.Base(program))
	Expect(os.WriteFile(out, append(content, 0), 0o700)).To(Succeed()) //nolint:gosec // it is a program
	return out
}

// StartNode brings up a control plane with the charts and the controller, as StartRealtime does, and one
// real node in place of simulated ones. The agent that the chart gives every real-time node runs beside
// it as two processes, with the arguments and the rights that the chart gives them.
func StartNode(data []byte) *Environment {
	GinkgoHelper()
	root, err := toolchain.FindRoot(".")
	Expect(err).NotTo(HaveOccurred())
	env, ready := prepare(data)
	catalogue := filepath.Join(root, "test", "suites", "realtime", "testdata", "catalogue.yaml")
	manifests := env.startCharted(ready, catalogue, map[string]any{"agent": map[string]any{
		"enabled": true, "callers": []any{map[string]any{"name": SetterName, "namespace": "default"}},
		"checkpoint": map[string]any{"enabled": true},
	}})
	env.defaults = chart.Override(env.defaults, "--rt-budget-granularity="+nodeGranularity,
		"--rt-pressure-calm=4s", "--rt-pressure-recovery-interval=2s") // the next scenario begins once the node is calm
	env.Agents = &Program{}
	env.LoadProgram, env.hollow = ready.program("load"), ready.program(programs.Agents)
	start := func(name, logs string) *localnode.Node {
		GinkgoHelper()
		Expect(os.MkdirAll(logs, 0o700)).To(Succeed())
		node, err := localnode.Start(env, env.Plane, localnode.Options{
			Name: name, Bin: ready.Tools, Images: []string{ready.program(loadArchive), ready.program(agentArchive)}, Progress: GinkgoWriter,
			Logs: logs, Networks: true, Checkpoints: true,
		})
		Expect(err).NotTo(HaveOccurred())
		return node
	}
	env.Node = start(RealNodeName, env.dir)
	Expect(env.Node.Import(env, ready.program(hereArchive))).To(Succeed())
	Expect(env.Node.Import(env, ready.program(unlikeArchive))).To(Succeed())
	env.NodeAgent = newNodeAgent(env, ready, manifests, env.Node, "")
	env.metricsServer = ready.Tools[toolchain.MetricsServer]
	env.second = func() (*localnode.Node, *NodeAgent) {
		node := start(SecondNodeName, filepath.Join(env.dir, SecondNodeName))
		Expect(node.Import(env, ready.program(otherArchive))).To(Succeed())
		return node, newNodeAgent(env, ready, manifests, node, hostsCore())
	}
	return env
}

// hostsCore is the one that an agent leaves to the host by default. On a machine that is two nodes the second has it: a core has one fast path.
func hostsCore() string {
	GinkgoHelper()
	topology, err := host.New("/").Topology()
	Expect(err).NotTo(HaveOccurred())
	return strconv.Itoa(slices.Min(topology.Online()))
}

// ExpectSecondNode brings up another real node on this machine, and prepares its agent. Both end with the container of
// specs that asks for them.
func (env *Environment) ExpectSecondNode() (*localnode.Node, *NodeAgent) {
	GinkgoHelper()
	node, agent := env.second()
	// Ginkgo runs these from the last to the first, each also where one before it fails: else pods of other scenarios would go to that node.
	DeferCleanup(func() {
		Expect(client.IgnoreNotFound(env.Client.Delete(env, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: SecondNodeName}}))).To(Succeed())
	})
	DeferCleanup(func() { Expect(node.Stop()).To(Succeed()) })
	DeferCleanup(func() { Expect(agent.stop()).To(Succeed()) })
	return node, agent
}
