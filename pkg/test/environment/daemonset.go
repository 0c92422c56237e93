package environment

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/process"
)

// agentLabel marks the pod of ExpectAgentPod.
const agentLabel = "mainspring.test/agent"

// ExpectAgentPod runs the agent of the real node as its kubelet does, from the chart's DaemonSet, in place of the two
// processes beside the node, which ExpectNoAgentPod takes away again. Only paths, image, port and network are
// the node's: pods here have no network of their own.
func (env *Environment) ExpectAgentPod() *corev1.Pod {
	GinkgoHelper()
	env.NodeAgent.Agent.ExpectStopped()
	env.NodeAgent.FastPath.ExpectStopped()
	Expect(env.Client.Create(env, env.agentDaemonSet())).To(Succeed())
	var pod *corev1.Pod
	Eventually(func(g Gomega) {
		pods := env.agentPods(g)
		g.Expect(pods).To(HaveLen(1))
		pod = &pods[0]
		g.Expect(pod.Status.Conditions).To(ContainElement(And(
			HaveField("Type", corev1.PodReady), HaveField("Status", corev1.ConditionTrue),
		)), "containers: %v", pod.Status.ContainerStatuses)
	}).Should(Succeed(), func() string { return "the agent's pod should be ready; its containers log:\n" + env.agentPodLogs() })
	return pod
}

// agentPodLogs are the ends of the logs of its containers, which go with the node.
func (env *Environment) agentPodLogs() string {
	GinkgoHelper()
	paths, err := filepath.Glob(filepath.Join(env.Node.PodLogsDir(), chartNamespace+"_*", "*", "*.log"))
	Expect(err).NotTo(HaveOccurred())
	var out strings.Builder
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			text = []byte(err.Error())
		}
		fmt.Fprintf(&out, "%s:\n%s\n", path, text[max(0, len(text)-agentLogMost):])
	}
	return out.String()
}

// agentLogMost bounds the end of a log, in bytes.
const agentLogMost = 16 << 10

// ExpectNoAgentPod ends what ExpectAgentPod began.
func (env *Environment) ExpectNoAgentPod() {
	GinkgoHelper()
	env.ExpectDeleted(env.agentDaemonSet())
	Eventually(func(g Gomega) { g.Expect(env.agentPods(g)).To(BeEmpty()) }).Should(Succeed(), "the agent's pod should end")
}

func (env *Environment) agentPods(g Gomega) []corev1.Pod {
	list := &corev1.PodList{}
	g.Expect(env.Client.List(env, list, client.InNamespace(chartNamespace), client.HasLabels{agentLabel})).To(Succeed())
	return list.Items
}

// agentDaemonSet is the chart's, for the real node alone.
func (env *Environment) agentDaemonSet() *appsv1.DaemonSet {
	GinkgoHelper()
	former := env.NodeAgent.daemonSet
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: former.Namespace, Name: former.Name + "-here"},
		Spec:       *former.Spec.DeepCopy(),
	}
	set.Spec.Selector = metav1.SetAsLabelSelector(map[string]string{agentLabel: "here"})
	set.Spec.Template.Labels = map[string]string{agentLabel: "here"}
	set.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: RealNodeName}
	env.fit(set)
	return set
}

// fit adapts the DaemonSet to the real node.
func (env *Environment) fit(set *appsv1.DaemonSet) {
	GinkgoHelper()
	ports, err := process.FreePorts(env, 2)
	Expect(err).NotTo(HaveOccurred())
	spec := &set.Spec.Template.Spec
	text, err := json.Marshal(spec)
	Expect(err).NotTo(HaveOccurred())
	fitted := strings.NewReplacer(
		"/var/lib/kubelet", env.Node.KubeletDir(),
		"/var/run/cdi", env.Node.CDIDir(),
		"/var/run/nri", filepath.Dir(env.Node.NRISocket()),
		"/var/lib/mainspring", filepath.Join(env.Node.Dir(), "mainspring"),
		"--port=8080", fmt.Sprintf("--port=%d", ports[0]),
		"--checkpoint-port=8091", fmt.Sprintf("--checkpoint-port=%d", ports[1]),
		"--checkpoint-keep-free-percent=15", "--checkpoint-keep-free-percent=2", // as in NodeAgent
		"/run/containerd/containerd.sock", env.Node.RuntimeSocket(),
		`"/run/containerd"`, strconv.Quote(filepath.Dir(env.Node.RuntimeSocket())),
		"--busy-after=5s", "--busy-after=1h",
	).Replace(string(text))
	*spec = corev1.PodSpec{}
	Expect(json.Unmarshal([]byte(fitted), spec)).To(Succeed())
	api, err := url.Parse(env.Config.Host)
	Expect(err).NotTo(HaveOccurred())
	spec.HostNetwork = true
	for i := range spec.Containers {
		c := &spec.Containers[i]
		c.Image, c.ImagePullPolicy = agentImage, corev1.PullNever
		c.Env = append(c.Env,
			corev1.EnvVar{Name: "KUBERNETES_SERVICE_HOST", Value: api.Hostname()},
			corev1.EnvVar{Name: "KUBERNETES_SERVICE_PORT", Value: api.Port()},
		)
		for j := range c.Ports {
			port := int32(ports[0])
			if c.Ports[j].Name == "checkpoints" {
				port = int32(ports[1])
			}
			c.Ports[j].ContainerPort, c.Ports[j].HostPort = port, port
		}
	}
}
