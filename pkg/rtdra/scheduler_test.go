package rtdra_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

const patience = 2 * time.Minute

// cluster is a control plane with one node, edge-1, that has real-time cores.
type cluster struct{ kubernetes.Interface }

func newCluster(t *testing.T, cores ...rt.Core) cluster {
	t.Helper()
	options := localplane.Options{Scheduler: true, ControllerManager: true, NodeMonitorGracePeriod: 10 * time.Minute}
	var err error
	if options.Bin, err = toolchain.Ensure(t.Context(), os.Stderr, options.Tools()...); err != nil {
		t.Fatal(err)
	}
	plane, err := localplane.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { plane.Stop() }) //nolint:errcheck // the test is over
	client, err := kubernetes.NewForConfig(plane.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	c := cluster{client}
	c.addNode(t, cores)
	if _, err := c.ResourceV1().DeviceClasses().Create(t.Context(), rtdra.DeviceClass(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c cluster) addNode(t *testing.T, cores []rt.Core) {
	t.Helper()
	list := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("100"), corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("8Gi")}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}}
	node.Status = corev1.NodeStatus{Capacity: list, Allocatable: list, Conditions: []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}}}
	if _, err := c.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "edge-1-cores"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: v1alpha1.DriverCPU, NodeName: ptr.To("edge-1"), Pool: resourcev1.ResourcePool{Name: "edge-1", ResourceSliceCount: 1},
	}}
	for _, core := range cores {
		slice.Spec.Devices = append(slice.Spec.Devices, rtdra.Device(core, "simulated"))
	}
	if _, err := c.ResourceV1().ResourceSlices().Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// place creates a pod as the webhook would leave it, and returns the device and the request that the
// scheduler chose, or why it chose none.
func (c cluster) place(t *testing.T, m *mcv1.McKube) (device, request, refusal string) {
	t.Helper()
	template, err := rtdra.Template(m, granularity)
	if err != nil {
		t.Fatal(err)
	}
	template.OwnerReferences = nil // there is no McKube here
	if _, err := c.ResourceV1().ResourceClaimTemplates("default").Create(t.Context(), template, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	claim := rtdra.ClaimName("app")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: m.Name}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{
			Name: "app", Image: "app:1", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: claim}}},
		}},
		ResourceClaims: []corev1.PodResourceClaim{{Name: claim, ResourceClaimTemplateName: &template.Name}},
		Tolerations:    []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
	}}
	if _, err := c.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		device, request, refusal, err = c.decision(ctx, m.Name)
		return device != "" || refusal != "", err
	})
	if err != nil {
		t.Fatalf("%s: %v", m.Name, err)
	}
	return device, request, refusal
}

func (c cluster) decision(ctx context.Context, name string) (device, request, refusal string, err error) {
	pod, err := c.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", "", "", err
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable && len(pod.Status.ResourceClaimStatuses) > 0 {
			refusal = condition.Message
		}
	}
	if pod.Spec.NodeName == "" || len(pod.Status.ResourceClaimStatuses) == 0 {
		return "", "", refusal, nil
	}
	claim, err := c.ResourceV1().ResourceClaims("default").Get(ctx, *pod.Status.ResourceClaimStatuses[0].ResourceClaimName, metav1.GetOptions{})
	if err != nil || claim.Status.Allocation == nil {
		return "", "", "", fmt.Errorf("pod %s is bound without a core: %w", name, err)
	}
	result := claim.Status.Allocation.Devices.Results[0]
	return result.Device, result.Request, "", nil
}

// taking is a McKube whose claim is for share parts per thousand of a core.
func taking(name string, share int64, options ...func(*mcv1.McKube)) *mcv1.McKube {
	budget := share*100 - granularity
	return mckube(name, mcv1.RTSettings{Period: 100_000, RuntimeLow: budget, RuntimeHi: budget}, options...)
}

func preferring(cores string) func(*mcv1.McKube) {
	return func(m *mcv1.McKube) { m.Spec.RTSettings.Core = ptr.To(cores) }
}

// TestTheSchedulerPacksCores has kube-scheduler place claims one by one. It knows nothing of real time;
// what it does follows from the claims and devices alone.
func TestTheSchedulerPacksCores(t *testing.T) {
	core := func(id int) rt.Core {
		return rt.Core{ID: id, Sibling: rt.NoSibling, Capacity: 900_000, Granularity: granularity}
	}
	coarse, reserve := core(3), core(4)
	coarse.Granularity = 400
	reserve.Capacity, reserve.EscalationReserve = 600_000, 300_000
	c := newCluster(t, core(1), core(2), coarse, reserve)

	limitedTo := func(share int64) *mcv1.McKube {
		m := taking("limited", share, limited)
		m.Spec.RTSettings.RuntimeHi += 25_000
		return m
	}
	for _, tc := range []struct {
		mckube          *mcv1.McKube
		device, request string
	}{
		{taking("prefers-2", 300, preferring("2")), "core-2", "core/preferred"},
		{taking("prefers-2-too", 700, preferring("2")), "core-1", "core/any"}, // 600 are left on core 2
		{limitedTo(500), "core-4", "core"},                                    // no other core has a reserve for its raise
		{taking("any", 300), "core-2", "core"},                                // 200 are left on core 1
		{taking("prefers-coarse", 100, preferring("3")), "core-1", "core/any"},
		{taking("prefers-some", 100, preferring("0,2-3")), "core-2", "core/preferred"},
	} {
		device, request, refusal := c.place(t, tc.mckube)
		if device != tc.device || request != tc.request {
			t.Errorf("%s is on %q by %q (%s), want %s by %s", tc.mckube.Name, device, request, refusal, tc.device, tc.request)
		}
	}
	// 100, 200 and 100 are left on three cores: a sum of 400 is no room for 300.
	if device, _, refusal := c.place(t, taking("too-large", 300)); refusal == "" {
		t.Errorf("too-large is on %s", device)
	}
}
