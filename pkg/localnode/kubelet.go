package localnode

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// kubeletConfig is that of a node for real-time work: cores are not the kubelet's to give
// (cpuManagerPolicy none). Everything else keeps the kubelet to the node's directory and control group.
func (n *Node) kubeletConfig(id localplane.NodeIdentity) *kubeletv1beta1.KubeletConfiguration {
	return &kubeletv1beta1.KubeletConfiguration{
		TypeMeta:           metav1.TypeMeta{APIVersion: kubeletv1beta1.SchemeGroupVersion.String(), Kind: "KubeletConfiguration"},
		Address:            n.record.Address,
		HealthzBindAddress: n.record.Address,
		HealthzPort:        ptr.To[int32](10248),
		Authentication: kubeletv1beta1.KubeletAuthentication{
			Anonymous: kubeletv1beta1.KubeletAnonymousAuthentication{Enabled: ptr.To(false)},
			Webhook:   kubeletv1beta1.KubeletWebhookAuthentication{Enabled: ptr.To(true)},
			X509:      kubeletv1beta1.KubeletX509Authentication{ClientCAFile: id.CA},
		},
		Authorization:            kubeletv1beta1.KubeletAuthorization{Mode: kubeletv1beta1.KubeletAuthorizationModeWebhook},
		TLSCertFile:              id.Cert,
		TLSPrivateKeyFile:        id.Key,
		ContainerRuntimeEndpoint: "unix://" + n.RuntimeSocket(),
		FailCgroupV1:             ptr.To(false),
		CgroupDriver:             "cgroupfs",
		CgroupRoot:               n.record.Group,
		CgroupsPerQOS:            ptr.To(true),
		EnforceNodeAllocatable:   []string{"pods"},
		CPUManagerPolicy:         "none",
		OOMScoreAdj:              ptr.To[int32](0), // lower takes CAP_SYS_RESOURCE
		MakeIPTablesUtilChains:   ptr.To(false),
		FailSwapOn:               ptr.To(false),
		ResolverConfig:           ptr.To(""),
		VolumePluginDir:          n.dir.file("kubelet", "volumeplugins"),
		PodLogsDir:               n.PodLogsDir(),
		// A machine that is nearly full is no reason to evict the pods of a test.
		EvictionHard:                map[string]string{"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
		ImageGCHighThresholdPercent: ptr.To[int32](100),
		NodeStatusUpdateFrequency:   metav1.Duration{Duration: 5 * time.Second},
		NodeStatusReportFrequency:   metav1.Duration{Duration: 30 * time.Second},
		MaxPods:                     50,
		// A pod whose claim could not be prepared, because its driver was just starting, is tried again as often.
		SyncFrequency: metav1.Duration{Duration: 5 * time.Second},
		// A container that keeps ending is a scenario, not a burden.
		CrashLoopBackOff: kubeletv1beta1.CrashLoopBackOffConfig{MaxContainerRestartPeriod: &metav1.Duration{Duration: 2 * time.Second}},
	}
}

func (n *Node) writeKubeletConfig(plane *localplane.Plane) error {
	id, err := plane.NodeIdentity(n.options.Name, net.ParseIP(n.record.Address))
	if err != nil {
		return err
	}
	n.kubeconfig = id.Kubeconfig
	content, err := yaml.Marshal(n.kubeletConfig(id))
	if err != nil {
		return fmt.Errorf("making the kubelet's configuration: %w", err)
	}
	for _, dir := range []string{n.KubeletDir(), n.PodLogsDir()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("creating the kubelet's directories: %w", err)
		}
	}
	if err := os.WriteFile(n.dir.file("kubelet.yaml"), content, 0o600); err != nil {
		return fmt.Errorf("writing the kubelet's configuration: %w", err)
	}
	return nil
}

// StartKubelet starts the kubelet, which must not run, and waits until the node is ready.
func (n *Node) StartKubelet(ctx context.Context) error {
	labels := make([]string, 0, len(n.options.Labels))
	for key, value := range n.options.Labels {
		labels = append(labels, key+"="+value)
	}
	slices.Sort(labels)
	before := n.clock.Now()
	err := n.launch(&n.kubelet, toolchain.Kubelet,
		"--config="+n.dir.file("kubelet.yaml"),
		"--kubeconfig="+n.kubeconfig,
		"--root-dir="+n.KubeletDir(),
		"--cert-dir="+n.dir.file("kubelet", "pki"),
		"--hostname-override="+n.options.Name,
		"--node-ip="+n.record.Address,
		"--node-labels="+strings.Join(labels, ","),
		"--v=2",
	)
	if err != nil {
		return err
	}
	return n.await(ctx, "Node "+n.options.Name+" to be ready", func(ctx context.Context) error {
		return n.ready(ctx, before)
	})
}

// ready tells why the Node is not ready; a condition from before the kubelet started says nothing.
func (n *Node) ready(ctx context.Context, since time.Time) error {
	node, err := n.client.CoreV1().Nodes().Get(ctx, n.options.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range node.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		if c.Status == corev1.ConditionTrue && !c.LastHeartbeatTime.Time.Before(since.Truncate(time.Second)) {
			return nil
		}
		return fmt.Errorf("condition Ready is %s of %s: %s", c.Status, c.LastHeartbeatTime.Format(time.TimeOnly), c.Message)
	}
	return fmt.Errorf("no condition Ready yet")
}

// StopKubelet ends the kubelet; its containers run on.
func (n *Node) StopKubelet() error { return n.stop(n.kubelet) }
