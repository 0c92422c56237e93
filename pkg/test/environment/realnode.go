package environment

import (
	"context"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
	"github.com/samber/lo"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/localnode"
	"github.com/mainspring-rt/mainspring/pkg/localnode/image"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// LoadImage is what the containers of a real node run: the program of test/suites/node/load.
const LoadImage = "mainspring.local/load:test"

// RealNodeName is the name of the real node.
const RealNodeName = "real"

// SetterName is the ServiceAccount in namespace default that the chart lets POST /set-rt.
const SetterName = "setter"

// nodeGranularity is more than a kernel whose tick is 4 ms may take to notice the end of a budget.
const nodeGranularity = "5ms"

const (
	loadArchive     = "load.tar"
	agentArchive    = "agent.tar"
	agentImage      = "mainspring.local/agent:test"
	agentProgram    = "agent"
	fastPathProgram = "fastpath"
)

// PrepareNode is Prepare for suites with a real node.
func PrepareNode(ctx context.Context) []byte {
	GinkgoHelper()
	ready := build(ctx, localnode.Tools(), controllerProgram)
	load := ready.program("load")
	for program, pkg := range map[string]string{ // those of images need no library, and so no race detector
		load:                           "/test/suites/node/load",
		ready.program(agentProgram):    "/cmd/agent",
		ready.program(fastPathProgram): "/cmd/fastpath",
	} {
		Expect(image.BuildProgram(ctx, toolchain.MainModule+pkg, program)).To(Succeed())
	}
	for archive, i := range map[string]image.Image{
		loadArchive:  {Reference: LoadImage, Programs: []string{load}},
		agentArchive: {Reference: agentImage, Programs: []string{ready.program(agentProgram), ready.program(fastPathProgram)}},
	} {
		Expect(i.Save(ready.program(archive))).To(Succeed())
	}
	return ready.encode()
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
	}})
	env.defaults = merge(env.defaults, "--rt-budget-granularity="+nodeGranularity)
	env.Agents = &Program{}
	env.Node, err = localnode.Start(env, env.Plane, localnode.Options{
		Name: RealNodeName, Bin: ready.Tools, Images: []string{ready.program(loadArchive), ready.program(agentArchive)}, Progress: GinkgoWriter,
		Logs: env.dir,
	})
	Expect(err).NotTo(HaveOccurred())
	env.NodeAgent = newNodeAgent(env, ready, manifests)
	return env
}

// nodeKubeconfig writes a kubeconfig with a token of the ServiceAccount that names the real node, as those that
// its kubelet gives to pods do.
func (env *Environment) nodeKubeconfig(namespace, serviceAccount string) string {
	GinkgoHelper()
	node := &corev1.Node{}
	Expect(env.Client.Get(env, client.ObjectKey{Name: RealNodeName}, node)).To(Succeed())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: lo.ToPtr(int64(24 * 3600)),
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
	}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: serviceAccount}}
	Expect(env.Client.SubResource("token").Create(env, account, request)).To(Succeed())

	config := clientcmdapi.NewConfig()
	config.Clusters["plane"] = &clientcmdapi.Cluster{Server: env.Config.Host, CertificateAuthorityData: env.Config.CAData}
	config.AuthInfos["agent"] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	config.Contexts["plane"] = &clientcmdapi.Context{Cluster: "plane", AuthInfo: "agent"}
	config.CurrentContext = "plane"
	path := filepath.Join(env.dir, "agent.kubeconfig")
	Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	return path
}
