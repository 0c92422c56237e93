package environment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"

	// Karpenter's types register with client-go's scheme when they are imported.
	_ "sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	_ "sigs.k8s.io/karpenter/pkg/apis/v1"
	_ "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/mainspring-rt/mainspring/charts"
	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/nodeclass"
	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/localnode"
	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment/programs"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
	"github.com/mainspring-rt/mainspring/pkg/test/timing"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

const (
	// controllerNamespace is where the controller's ServiceAccount and leases are.
	controllerNamespace = "kube-system"
	// nodeGrace is how long the control plane waits for a silent kubelet. The default of 40 s would
	// only make scenarios longer; kubelets here renew their leases every few seconds.
	nodeGrace = 20 * time.Second
	// eventuallyTimeout bounds every wait of a scenario. These tests promise what happens, not how soon. It is longer than the longest delay of the
	// control plane's own (a dead node's pods, a reflector after an outage) on a machine that stands still for a minute.
	eventuallyTimeout = 5 * time.Minute
	pollEvery         = 200 * time.Millisecond
	// eventTTL is how long the API server keeps an Event. The record keeps it for good, and each Sync lists those that are there: of an hour's there
	// were thousands.
	eventTTL = 3 * time.Minute
)

// Environment is one control plane with one controller, for one Ginkgo process. It is the context of
// every request that a scenario makes.
type Environment struct {
	context.Context
	Client     client.WithWatch
	Config     *rest.Config
	Plane      *localplane.Plane
	Controller *Program
	// Agents are those of all simulated nodes, in one process. Most suites run them only where a
	// scenario asks for them.
	Agents *Program
	// Node is the real one of suites that have one.
	Node *localnode.Node
	// LoadProgram is the path of what its containers run.
	LoadProgram string
	// NodeAgent is the agent on it.
	NodeAgent *NodeAgent
	// second starts another real node.
	second func() (*localnode.Node, *NodeAgent)
	// metricsServer is the path of the program.
	metricsServer string

	answers     *answers         // of Client's reads
	direct      client.WithWatch // asks the API server each time
	cancel      context.CancelFunc
	defaults    []string // flags of the controller when a scenario asks for nothing else
	charted     []string // what of these the chart gives
	agentFlags  []string
	standing    []client.Object // what every scenario finds in the cluster
	command     string          // path of the command line
	kubectl     string          // path of kubectl
	hollow      string          // path of the simulated nodes' agents, in suites with a real node
	dir         string
	scraper     scraper
	service     *service // the webhooks' address; nil without webhooks
	audit       *audit   // nil without webhooks
	recorder    *history.Recorder
	logStart    int64    // where the spec begins in the controller's log
	agentsStart int64    // and in the agents'
	outage      bool     // the spec has taken the API server away
	forbids     string   // what a policy of the spec says when it forbids, in lower case
	dead        []string // nodes whose kubelets the spec has stopped
	failed      bool
}

// Start brings up the control plane of this process. data comes from Prepare. The controller is
// started by the first spec.
func Start(data []byte) *Environment {
	GinkgoHelper()
	env, ready := prepare(data)
	env.startPlane(ready)
	Expect(env.Plane.ApplyCRDs(env, crds()...)).To(Succeed())
	env.installController(ready.program(programs.Controller))
	var err error
	env.Agents, err = newProgram(env, ready.program(programs.Agents), env.Controller.kubeconfig, env.dir)
	Expect(err).NotTo(HaveOccurred())
	return env
}

// prepare gives the environment its directory.
func prepare(data []byte) (*Environment, prepared) {
	GinkgoHelper()
	SetDefaultEventuallyTimeout(eventuallyTimeout)
	SetDefaultEventuallyPollingInterval(pollEvery)
	EnforceDefaultTimeoutsWhenUsingContexts()
	crlog.SetLogger(GinkgoLogr) // what clients warn of belongs to the spec that had them warn

	var ready prepared
	Expect(json.Unmarshal(data, &ready)).To(Succeed())
	env := &Environment{standing: []client.Object{test.NodeClass()}, command: ready.program(programs.Command), kubectl: ready.Tools[toolchain.Kubectl]}
	env.Context, env.cancel = context.WithCancel(context.Background())
	var err error
	env.dir, err = os.MkdirTemp("", fmt.Sprintf("mainspring-e2e-%d-", GinkgoParallelProcess()))
	Expect(err).NotTo(HaveOccurred())
	return env, ready
}

// neededControllers has kube-controller-manager run what scenarios stand on. The others watch, and write to, every plane of a run: certificates, addresses of
// Services, autoscaling by metrics, cloud routes, and what migrates stored versions.
func neededControllers() string {
	list := "--controllers=*"
	for _, name := range []string{
		"certificatesigningrequest-approving", "certificatesigningrequest-cleaner", "certificatesigningrequest-signing", "cronjob", "endpoints", "endpointslice",
		"endpointslice-mirroring", "horizontal-pod-autoscaler", "kube-apiserver-serving-clustertrustbundle-publisher", "legacy-serviceaccount-token-cleaner",
		"node-ipam", "node-route", "persistentvolume-expander", "podcertificaterequest-cleaner", "podgroup-protection", "resourcepoolstatusrequest",
		"service-cidr", "service-lb", "storage-version-migrator", "storageversion-garbage-collector", "ttl-after-finished", "ttl",
		"validatingadmissionpolicy-status", "volumeattributesclass-protection",
	} {
		list += ",-" + name + "-controller"
	}
	return list
}

// startPlane brings up an empty control plane with kubelets.
func (env *Environment) startPlane(ready prepared, apiServerArgs ...string) {
	GinkgoHelper()
	ended := timing.Start(timing.ControlPlane, GinkgoT().Name())
	defer ended()
	var err error
	env.Plane, err = localplane.Start(env, localplane.Options{
		Dir:                    env.dir,
		Progress:               GinkgoWriter,
		Bin:                    ready.Tools,
		Scheduler:              true,
		ControllerManager:      true,
		Kwok:                   true,
		NodeMonitorGracePeriod: nodeGrace,
		APIServerArgs:          append(apiServerArgs, localplane.WithoutFairness, "--event-ttl="+eventTTL.String()),
		ControllerManagerArgs:  []string{neededControllers()},
	})
	Expect(err).NotTo(HaveOccurred())
	env.connect()
}

func (env *Environment) connect() {
	GinkgoHelper()
	scheme := clientgoscheme.Scheme
	for _, add := range []func(*runtime.Scheme) error{mckubev1alpha1.AddToScheme, nodeclass.AddToScheme, mcoperatorv1.AddToScheme, kcloudv1alpha1.AddToScheme, apiextensionsv1.AddToScheme} {
		Expect(add(scheme)).To(Succeed())
	}
	env.Config = rest.CopyConfig(env.Plane.RESTConfig())
	env.Config.QPS, env.Config.Burst = 1000, 1000
	var err error
	env.direct, err = client.NewWithWatch(env.Config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	env.answers = &answers{}
	env.answers.forget()
	env.Client = env.answers.client(env.direct)
}

// crds are those that users install.
func crds() [][]byte {
	GinkgoHelper()
	docs, err := charts.CRDs()
	Expect(err).NotTo(HaveOccurred())
	return docs
}

// installController gives the controller an identity in the cluster, and the tests a token with
// which to read its metrics.
func (env *Environment) installController(binary string) {
	GinkgoHelper()
	const name = "mainspring"
	subject := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: controllerNamespace, Name: name}}
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: controllerNamespace}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   subject,
		},
	} {
		Expect(env.Client.Create(env, o)).To(Succeed())
	}
	kubeconfig, err := env.Plane.KubeconfigFor(env, controllerNamespace, name)
	Expect(err).NotTo(HaveOccurred())
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	env.scraper = newScraper(config.BearerToken)
	env.Controller, err = newProgram(env, binary, kubeconfig, env.dir)
	Expect(err).NotTo(HaveOccurred())
	env.defaults = DefaultFlags()
}

// Stop ends the programs and the control plane. The logs are kept when a spec has failed.
func (env *Environment) Stop() {
	GinkgoHelper()
	if env == nil {
		return
	}
	stopped := errors.Join(env.Controller.Stop(), env.Agents.Stop())
	if env.Node != nil {
		stopped = errors.Join(stopped, env.NodeAgent.stop(), env.Node.Stop())
	}
	if env.service != nil {
		env.service.stop()
	}
	env.cancel()
	Expect(env.Plane.Stop()).To(Succeed())
	if env.failed {
		AddReportEntry("logs are kept in", env.dir)
		Expect(keepLogs(env.dir)).To(Succeed())
	} else {
		Expect(os.RemoveAll(env.dir)).To(Succeed())
	}
	Expect(stopped).To(Succeed())
}

// keepLogs removes everything below dir but logs: the rest is large, or holds keys.
func keepLogs(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(path, ".log") {
			return err
		}
		return os.Remove(path)
	})
}
