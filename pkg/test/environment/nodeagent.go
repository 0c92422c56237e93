package environment

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/chart"
	"github.com/mainspring-rt/mainspring/pkg/localagent"
	"github.com/mainspring-rt/mainspring/pkg/localnode"
	"github.com/mainspring-rt/mainspring/pkg/process"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
	"github.com/mainspring-rt/mainspring/pkg/webhooks/certs"
)

// frontDoorTimeout bounds one request.
const frontDoorTimeout = 30 * time.Second

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

// ExpectStartedWith starts it with further arguments, which count until it ends.
func (c *Child) ExpectStartedWith(args ...string) {
	GinkgoHelper()
	with := *c
	with.args = chart.Override(c.args, args...)
	with.ExpectStarted()
	c.process = with.process
}

// Kill9 ends it without warning.
func (c *Child) Kill9() {
	GinkgoHelper()
	c.ExpectAlive()
	c.process.Kill()
}

// ExpectStopped asks it to end, and expects that it does with exit code 0. A program that has logged nothing yet does
// not listen to signals yet either, and would be ended by the kernel.
func (c *Child) ExpectStopped() {
	GinkgoHelper()
	if !c.Running() {
		return
	}
	Eventually(func() bool { return c.process.Tail() != "" || !c.Running() }).Should(BeTrue(), "%s should log its start", c.name)
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
	// URL of the agent's front door, the file of the authority that signs its certificate, and the name that it is for: the
	// node's, which the chart gives it.
	url, ca, name string
	env           *Environment
	// daemonSet is what the chart runs both by.
	daemonSet *appsv1.DaemonSet
}

// newNodeAgent prepares the agent as the chart runs it, but for paths, and for the cores that it governs; empty: the chart's.
func newNodeAgent(env *Environment, ready prepared, manifests chart.Manifests, node *localnode.Node, cores string) *NodeAgent {
	GinkgoHelper()
	dir := filepath.Join(env.dir, "node-"+node.Name())
	set, err := chart.AgentDaemonSet(manifests)
	Expect(err).NotTo(HaveOccurred())
	args, err := localagent.NewArguments(env, localagent.Options{
		Plane: env.Plane, Node: node, Chart: manifests, Dir: dir, CRIU: ready.Tools[toolchain.CRIU], Cores: cores,
	})
	Expect(err).NotTo(HaveOccurred())
	return &NodeAgent{
		env: env, Client: client.New(args.Socket), daemonSet: set, url: args.URL, ca: args.CA, name: node.Name(),
		FastPath: Child{name: fastPathProgram, binary: ready.program(fastPathProgram), log: filepath.Join(dir, "fastpath.log"), args: args.FastPath},
		Agent: Child{
			name: agentProgram, binary: ready.program(agentProgram), log: filepath.Join(dir, "agent.log"),
			args: chart.Override(args.Agent, "--busy-after=1h", "--v=1"), // the machine is busy with other tests
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

// Call sends the front door a request as the bearer of the token, and returns the answer's status and text. The
// certificate is verified.
func (a *NodeAgent) Call(method, path, token, body string) (int, string) {
	GinkgoHelper()
	authority, err := os.ReadFile(a.ca)
	Expect(err).NotTo(HaveOccurred())
	roots := x509.NewCertPool()
	Expect(roots.AppendCertsFromPEM(authority)).To(BeTrue())
	request, err := http.NewRequestWithContext(a.env, method, a.url+path, bytes.NewBufferString(body))
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer "+token)
	request.Close = true
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: a.name, MinVersion: tls.VersionTLS12}}
	response, err := (&http.Client{Transport: transport, Timeout: frontDoorTimeout}).Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(text)
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

// ExpectSignedCertificate expects that the agent shows a certificate for the agents' Service that the authority of the
// webhooks' Secret has signed, as Prometheus verifies it.
func (a *NodeAgent) ExpectSignedCertificate() {
	GinkgoHelper()
	address := strings.TrimPrefix(a.url, "https://")
	Eventually(func(g Gomega) {
		secret := &corev1.Secret{}
		g.Expect(a.env.Client.Get(a.env, types.NamespacedName{Namespace: chartNamespace, Name: "mainspring-webhook"}, secret)).To(Succeed())
		roots := x509.NewCertPool()
		g.Expect(roots.AppendCertsFromPEM(secret.Data[certs.KeyBundle])).To(BeTrue())
		config := &tls.Config{RootCAs: roots, ServerName: "mainspring-agent." + chartNamespace + ".svc", MinVersion: tls.VersionTLS12}
		dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: frontDoorTimeout}, Config: config}
		connection, err := dialer.DialContext(a.env, "tcp", address)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(connection.Close()).To(Succeed())
	}).Should(Succeed())
}
