package environment

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions

	appsv1 "k8s.io/api/apps/v1"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/process"
	"github.com/mainspring-rt/mainspring/pkg/test/chart"
)

// Child is a program that a scenario starts, kills and starts again.
type Child struct {
	name, binary, log string
	args              []string
	process           *process.Process
}

// ExpectStarted starts the program.
func (c *Child) ExpectStarted() {
	GinkgoHelper()
	Expect(c.Running()).To(BeFalse(), "%s runs already", c.name)
	Expect(os.MkdirAll(filepath.Dir(c.log), 0o700)).To(Succeed())
	var err error
	c.process, err = process.Start(process.Command{Name: c.name, Path: c.binary, Args: c.args, Log: c.log})
	Expect(err).NotTo(HaveOccurred())
}

// Running tells whether it lives.
func (c *Child) Running() bool { return c.process != nil && c.process.Running() }

// ExpectAlive expects that it has not ended by itself.
func (c *Child) ExpectAlive() {
	GinkgoHelper()
	if c.process != nil && !c.process.Running() {
		Expect(c.process.Died()).To(Succeed())
	}
}

// Kill9 ends it without warning.
func (c *Child) Kill9() {
	GinkgoHelper()
	c.ExpectAlive()
	c.process.Kill()
}

// ExpectStopped asks it to end, and expects that it does with exit code 0.
func (c *Child) ExpectStopped() {
	GinkgoHelper()
	if !c.Running() {
		return
	}
	Expect(c.process.Stop(stopTimeout)).To(Succeed())
	Expect(c.process.Err()).To(Succeed(), "%s should end gracefully:\n%s", c.name, c.process.Tail())
}

// stop asks it to end, where it runs.
func (c *Child) stop() error {
	if !c.Running() {
		return nil
	}
	return c.process.Stop(stopTimeout)
}

// NodeAgent is the node agent on the real node: two programs.
type NodeAgent struct {
	// FastPath keeps budgets.
	FastPath Child
	// Agent speaks with the API server.
	Agent Child
	// Client speaks with the fast path.
	Client *client.Client
	env    *Environment
	// daemonSet is what the chart runs both by.
	daemonSet *appsv1.DaemonSet
}

// newNodeAgent prepares the agent as the chart runs it, but for paths.
func newNodeAgent(env *Environment, ready prepared, manifests chart.Manifests) *NodeAgent {
	GinkgoHelper()
	dir := filepath.Join(env.dir, "node")
	socket := filepath.Join(dir, "fastpath.sock")
	set, err := chart.AgentDaemonSet(manifests)
	Expect(err).NotTo(HaveOccurred())
	fastPath, err := chart.NodeInvocation(set, fastPathProgram)
	Expect(err).NotTo(HaveOccurred())
	agent, err := chart.NodeInvocation(set, agentProgram)
	Expect(err).NotTo(HaveOccurred())
	return &NodeAgent{
		env: env, Client: client.New(socket), daemonSet: set,
		FastPath: Child{
			name: fastPathProgram, binary: ready.program(fastPathProgram), log: filepath.Join(dir, "fastpath.log"),
			args: merge(fastPath.Args, "--socket="+socket, "--state-dir="+filepath.Join(dir, "state")),
		},
		Agent: Child{
			name: agentProgram, binary: ready.program(agentProgram), log: filepath.Join(dir, "agent.log"),
			args: merge(agent.Args,
				"--node-name="+env.Node.Name(),
				"--kubeconfig="+env.nodeKubeconfig(agent.Namespace, agent.ServiceAccount),
				"--fastpath-socket="+socket,
				"--state-dir="+filepath.Join(dir, "agent"),
				"--kubelet-dir="+env.Node.KubeletDir(),
				"--cdi-dir="+env.Node.CDIDir(),
				"--nri-socket="+env.Node.NRISocket(),
				"--host="+env.Node.Address(),
				"--busy-after=1h", // the machine is busy with other tests
				"--v=1",
			),
		},
	}
}

// ExpectFastPath starts the fast path and expects it to answer.
func (a *NodeAgent) ExpectFastPath() {
	GinkgoHelper()
	a.FastPath.ExpectStarted()
	Eventually(func(g Gomega) {
		if !a.FastPath.Running() {
			StopTrying(fmt.Sprint(a.FastPath.process.Died())).Now()
		}
		_, err := a.Client.Report(a.env)
		g.Expect(err).NotTo(HaveOccurred())
	}).Should(Succeed())
}

// ExpectRunning starts what does not run.
func (a *NodeAgent) ExpectRunning() {
	GinkgoHelper()
	if !a.FastPath.Running() {
		a.ExpectFastPath()
	}
	if !a.Agent.Running() {
		a.Agent.ExpectStarted()
	}
}

// stop ends both; there is none where the node did not come up.
func (a *NodeAgent) stop() error {
	if a == nil {
		return nil
	}
	return errors.Join(a.Agent.stop(), a.FastPath.stop())
}

// Tails are the ends of both logs.
func (a *NodeAgent) Tails() string {
	var text string
	for _, c := range []*Child{&a.FastPath, &a.Agent} {
		if c.process != nil {
			text += c.name + ":\n" + c.process.Tail() + "\n"
		}
	}
	return text
}
