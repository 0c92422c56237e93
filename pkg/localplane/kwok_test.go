package localplane_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/mainspring-rt/mainspring/pkg/localplane"
)

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// expectDenied waits until the webhook is in force and refuses with the reason.
func expectDenied(t *testing.T, client kubernetes.Interface, reason string) {
	t.Helper()
	eventually(t, "the webhook to deny", func(ctx context.Context) error {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "forbidden"}}
		_, err := client.CoreV1().ConfigMaps("default").Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), reason) {
			return errors.Join(errors.New("the ConfigMap was not denied"), err)
		}
		return nil
	})
}

// addNode creates a Node with a simulated kubelet, removed with the test.
func addNode(t *testing.T, plane *localplane.Plane, name string) {
	t.Helper()
	nodes := adminOf(t, plane).CoreV1().Nodes()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		localplane.NodeLabel: localplane.NodeLabelValue, corev1.LabelHostname: name,
	}}}
	if _, err := nodes.Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nodes.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	expectReady(t, plane, name, corev1.ConditionTrue)
}

func expectReady(t *testing.T, plane *localplane.Plane, name string, want corev1.ConditionStatus) {
	t.Helper()
	expectCondition(t, plane, name, corev1.NodeReady, want)
}

func expectCondition(t *testing.T, plane *localplane.Plane, name string, kind corev1.NodeConditionType, want corev1.ConditionStatus) {
	t.Helper()
	client := adminOf(t, plane)
	eventually(t, fmt.Sprintf("node %s to have %s=%s", name, kind, want), func(ctx context.Context) error {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == kind && c.Status == want {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %v", node.Status.Conditions)
	})
}

// addPod creates a pod bound to the node of the same name, with a grace period of 6 s.
func addPod(t *testing.T, plane *localplane.Plane, name string, annotations map[string]string) {
	t.Helper()
	grace := int64(6)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: corev1.PodSpec{
			NodeSelector:                  map[string]string{corev1.LabelHostname: name},
			TerminationGracePeriodSeconds: &grace,
			RestartPolicy:                 corev1.RestartPolicyOnFailure,
			InitContainers:                []corev1.Container{{Name: "init", Image: "example.test/init"}},
			Containers:                    []corev1.Container{{Name: "main", Image: "example.test/main"}},
		},
	}
	if _, err := adminOf(t, plane).CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func expectRunning(t *testing.T, plane *localplane.Plane, name string) {
	t.Helper()
	expectPod(t, plane, name, "running and ready", func(pod *corev1.Pod) bool {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return pod.Status.Phase == corev1.PodRunning && pod.Status.PodIP != ""
			}
		}
		return false
	})
}

func expectPod(t *testing.T, plane *localplane.Plane, name, what string, is func(*corev1.Pod) bool) {
	t.Helper()
	client := adminOf(t, plane)
	eventually(t, fmt.Sprintf("pod %s to be %s", name, what), func(ctx context.Context) error {
		pod, err := client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !is(pod) {
			return fmt.Errorf("its status is %v", pod.Status)
		}
		return nil
	})
}

func TestNodeGetsReadyAndPodRuns(t *testing.T) {
	t.Parallel()
	plane := sharedPlane(t)
	addNode(t, plane, "runs")
	addPod(t, plane, "runs", nil)
	expectRunning(t, plane, "runs")
}

func TestNodeWithoutLabelFallsSilentAndComesBack(t *testing.T) {
	t.Parallel()
	plane := sharedPlane(t)
	addNode(t, plane, "silent")
	nodes := adminOf(t, plane).CoreV1().Nodes()
	remove := []byte(`{"metadata":{"labels":{"` + localplane.NodeLabel + `":null}}}`)
	if _, err := nodes.Patch(t.Context(), "silent", types.MergePatchType, remove, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	expectReady(t, plane, "silent", corev1.ConditionUnknown)
	add := []byte(`{"metadata":{"labels":{"` + localplane.NodeLabel + `":"` + localplane.NodeLabelValue + `"}}}`)
	if _, err := nodes.Patch(t.Context(), "silent", types.MergePatchType, add, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	expectReady(t, plane, "silent", corev1.ConditionTrue)
}

func TestNodeWhoseLeaseIsTakenFallsSilentAndComesBack(t *testing.T) {
	t.Parallel()
	plane := sharedPlane(t)
	addNode(t, plane, "robbed")
	addPod(t, plane, "robbed", nil)
	expectRunning(t, plane, "robbed")
	addNode(t, plane, "bystander")
	addPod(t, plane, "bystander", map[string]string{"pod-delete.stage.kwok.x-k8s.io/delay": "1s"})
	expectRunning(t, plane, "bystander")

	setHolder(t, plane, "robbed", "somebody-else", 1_000_000)
	expectLeasesSeen(t, adminOf(t, plane), "bystander")
	expectReady(t, plane, "robbed", corev1.ConditionUnknown)
	// The simulated kubelets hear of pods in the order of their changes: when the bystander, who
	// was deleted later and takes a second to end, is gone, the robbed one would be.
	pods := adminOf(t, plane).CoreV1().Pods("default")
	for _, name := range []string{"robbed", "bystander"} {
		if err := pods.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	watchDeletion(t, adminOf(t, plane), "bystander")
	if _, err := pods.Get(t.Context(), "robbed", metav1.GetOptions{}); err != nil {
		t.Errorf("a stopped kubelet ended its pod: %v", err)
	}
	setHolder(t, plane, "robbed", "", 0)
	expectReady(t, plane, "robbed", corev1.ConditionTrue)
	watchDeletion(t, adminOf(t, plane), "robbed")
}

// expectLeasesSeen waits until kwok knows of every change of a lease until now. It hears of them in
// their order and cannot renew a lease as it was before its last change, so it changes the lease of
// a Node and waits for the next renewal. (That another Node is Ready=Unknown says less: on a busy
// machine its lease may have been renewed too late before it was taken.)
func expectLeasesSeen(t *testing.T, client kubernetes.Interface, node string) {
	t.Helper()
	change := fmt.Sprintf(`{"metadata":{"annotations":{"example.test/changed":%q}}}`, time.Now())
	lease, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Patch(t.Context(), node, types.MergePatchType, []byte(change), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the changed lease to be renewed", func(ctx context.Context) error {
		if renewed := renewalOf(t, client, node); !renewed.After(lease.Spec.RenewTime.Time) {
			return fmt.Errorf("renewed at %s", renewed)
		}
		return nil
	})
}

// setHolder gives a Node's lease to a holder, or to nobody.
func setHolder(t *testing.T, plane *localplane.Plane, node, holder string, seconds int) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"holderIdentity":%q,"leaseDurationSeconds":%d}}`, holder, seconds)
	if holder == "" {
		patch = `{"spec":{"holderIdentity":null}}`
	}
	leases := adminOf(t, plane).CoordinationV1().Leases(corev1.NamespaceNodeLease)
	if _, err := leases.Patch(t.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestConditionsOfOthersSurvive(t *testing.T) {
	t.Parallel()
	plane := sharedPlane(t)
	addNode(t, plane, "sick")
	setCondition(t, plane, "sick", "KWOKUnhealthy", "True")
	setCondition(t, plane, "sick", "Ready", "False") // the kubelet reports Ready again
	expectReady(t, plane, "sick", corev1.ConditionTrue)
	expectCondition(t, plane, "sick", "KWOKUnhealthy", corev1.ConditionTrue)
}

func TestUnhealthyStageLeavesConditionsAlone(t *testing.T) {
	t.Parallel()
	plane := sharedPlane(t)
	addNode(t, plane, "pinned")
	pin := []byte(`{"metadata":{"labels":{"kwok.x-k8s.io/stage":"unhealthy"}}}`)
	client := adminOf(t, plane)
	if _, err := client.CoreV1().Nodes().Patch(t.Context(), "pinned", types.MergePatchType, pin, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	setCondition(t, plane, "pinned", "Ready", "False")
	before := renewalOf(t, client, "pinned")
	eventually(t, "two more renewals of the lease", func(ctx context.Context) error {
		if renewed := renewalOf(t, client, "pinned"); renewed.Sub(before) < 2*time.Second {
			return fmt.Errorf("renewed at %s, looked at since %s", renewed, before)
		}
		return nil
	})
	expectReady(t, plane, "pinned", corev1.ConditionFalse)
}

func renewalOf(t *testing.T, client kubernetes.Interface, node string) time.Time {
	t.Helper()
	lease, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return lease.Spec.RenewTime.Time
}

func setCondition(t *testing.T, plane *localplane.Plane, node, kind, status string) {
	t.Helper()
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q,"reason":"Test","message":"set by the test"}]}}`, kind, status)
	_, err := adminOf(t, plane).CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
}

func TestJobAndTimedPodComplete(t *testing.T) {
	t.Parallel()
	plane := sharedPlane(t)
	addNode(t, plane, "completes")
	addPod(t, plane, "completes", map[string]string{"pod-complete.stage.kwok.x-k8s.io/delay": "200ms"})
	expectPod(t, plane, "completes", "succeeded", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })

	client := adminOf(t, plane)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job"}, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		NodeSelector:  map[string]string{corev1.LabelHostname: "completes"},
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "example.test/main"}},
	}}}}
	if _, err := client.BatchV1().Jobs("default").Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the job to complete", func(ctx context.Context) error {
		got, err := client.BatchV1().Jobs("default").Get(ctx, "job", metav1.GetOptions{})
		if err == nil && got.Status.Succeeded != 1 {
			err = fmt.Errorf("its status is %v", got.Status)
		}
		return err
	})
}

func TestDeletedPodsGo(t *testing.T) {
	t.Parallel()
	plane := sharedPlane(t)
	client := adminOf(t, plane)
	for name, annotations := range map[string]map[string]string{
		"goes":     nil,
		"takes":    {"pod-delete.stage.kwok.x-k8s.io/delay": "300ms"},
		"stubborn": {"pod-delete.stage.kwok.x-k8s.io/ignore-sigterm": "true"},
	} {
		t.Run(name, func(t *testing.T) {
			addNode(t, plane, name)
			addPod(t, plane, name, annotations)
			expectRunning(t, plane, name)
			if err := client.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			deadline, gone := watchDeletion(t, client, name)
			if name == "stubborn" && gone.Before(deadline) {
				t.Errorf("gone at %s, before the end of its grace period at %s", gone, deadline)
			}
		})
	}
}

// watchDeletion waits until the pod is gone and returns when its grace period ends, zero when it
// was gone before that could be read, and when it went.
func watchDeletion(t *testing.T, client kubernetes.Interface, name string) (deadline, gone time.Time) {
	t.Helper()
	eventually(t, "pod "+name+" to go", func(ctx context.Context) error {
		pod, err := client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			gone = time.Now()
			return nil
		}
		if err == nil && pod.DeletionTimestamp != nil && deadline.IsZero() {
			deadline = pod.DeletionTimestamp.Time
		}
		return errors.Join(errors.New("it is still there"), err)
	})
	return deadline, gone
}
