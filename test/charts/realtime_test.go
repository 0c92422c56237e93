package charts_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/chart"
	"github.com/mainspring-rt/mainspring/pkg/hollow"
	"github.com/mainspring-rt/mainspring/pkg/test"
)

// reachWebhooksAt has the API server call the controller, which runs on this host and not behind the
// chart's Service.
func (p plane) reachWebhooksAt(t *testing.T, port int) {
	t.Helper()
	if err := chart.UseWebhooksAt(t.Context(), p.client, fmt.Sprintf("https://localhost:%d", port)); err != nil {
		t.Fatal(err)
	}
}

// liveRealtime opens a node with real-time cores for pods that come before and after their McKubes. What it
// returns takes them away, and waits until the McKubes are gone.
func (p plane) liveRealtime(t *testing.T) (end func()) {
	t.Helper()
	// The taint keeps its node for them: what else lives in this cluster must need nodes of its own.
	pool := test.RTNodePool("edge", "edge-atom-4x-amd64-linux", test.TerminationGracePeriod(10*time.Second),
		test.NodeTaints(corev1.Taint{Key: "edge", Effect: corev1.TaintEffectNoSchedule}))
	first, late := test.McKube("first", 30, test.Critical(mcoperatorv1.CriticalityHigh), test.MayRiseTo(40)), test.McKube("late", 20)
	p.apply(t, pool)
	// Its webhook answers once the controller is ready.
	soon(t, func(g gomega.Gomega) {
		g.Expect(client.IgnoreAlreadyExists(p.client.Create(t.Context(), first))).To(gomega.Succeed())
	})
	p.apply(t, test.RTPod("first", test.Tolerates("edge")),
		test.Pod("late", "100m", test.Tolerates("edge"), test.OnNodes(karpenterv1.NodePoolLabelKey, pool.Name)))
	p.expectBound(t, "first", 1)
	p.expectBound(t, "late", 1)
	p.apply(t, late)
	p.expectReady(t, first)
	p.expectReady(t, late)
	p.openNode(t, "first", pool.Name)
	p.keepHeadroom(t, pool)
	p.script(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: test.Namespace, Name: "late"}}, "one day overrun")
	p.script(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: late.Status.Node}}, "0s granularity 200")
	return func() {
		p.delete(t, first, late)
		soon(t, func(g gomega.Gomega) {
			left := &mcoperatorv1.McKubeList{}
			g.Expect(p.client.List(t.Context(), left)).To(gomega.Succeed())
			g.Expect(left.Items).To(gomega.BeEmpty())
		})
		p.delete(t, pool)
	}
}

// openNode has an action open a node for a pod that runs.
func (p plane) openNode(t *testing.T, name, pool string) {
	t.Helper()
	pod := &corev1.Pod{}
	if err := p.client.Get(t.Context(), client.ObjectKey{Namespace: test.Namespace, Name: name}, pod); err != nil {
		t.Fatal(err)
	}
	action := &v1alpha1.RTAction{
		ObjectMeta: metav1.ObjectMeta{Name: "by-hand"},
		Spec: v1alpha1.RTActionSpec{
			Kind: "OpenNode", Reason: "ByHand", Cause: "by-hand", Node: pod.Spec.NodeName, NodePool: pool, Timeout: metav1.Duration{Duration: 2 * time.Minute},
			Pods:        []v1alpha1.ActionPod{{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}},
			Beneficiary: v1alpha1.ActionBeneficiary{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		},
	}
	p.apply(t, action)
	soon(t, func(g gomega.Gomega) {
		g.Expect(p.client.Get(t.Context(), client.ObjectKeyFromObject(action), action)).To(gomega.Succeed())
		g.Expect(action.Status.Phase).To(gomega.Equal(v1alpha1.ActionPhase("Succeeded")), "%+v", action.Status)
	})
}

// keepHeadroom has room kept in a NodePool, and given up again.
func (p plane) keepHeadroom(t *testing.T, pool *karpenterv1.NodePool) {
	t.Helper()
	annotate := func(value string) {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, v1alpha1.AnnotationHeadroom, value)
		if err := p.client.Patch(t.Context(), pool.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(n int) {
		soon(t, func(g gomega.Gomega) {
			buffers := &autoscalingv1beta1.CapacityBufferList{}
			g.Expect(p.client.List(t.Context(), buffers, client.MatchingLabels{v1alpha1.LabelHeadroom: pool.Name})).To(gomega.Succeed())
			g.Expect(buffers.Items).To(gomega.HaveLen(n))
			for _, b := range buffers.Items {
				g.Expect(meta.IsStatusConditionTrue(b.Status.Conditions, autoscalingv1beta1.ProvisioningCondition)).To(gomega.BeTrue(), "%+v", b.Status)
			}
		})
	}
	annotate(`"{pods: 1, criticality: High, rtSettings: {period: 100000, runtime_low: 10000, runtime_hi: 20000}}"`)
	expect(1)
	annotate("null")
	expect(0)
}

func (p plane) expectReady(t *testing.T, m *mcoperatorv1.McKube) {
	t.Helper()
	soon(t, func(g gomega.Gomega) {
		g.Expect(p.client.Get(t.Context(), client.ObjectKeyFromObject(m), m)).To(gomega.Succeed())
		g.Expect(meta.IsStatusConditionTrue(m.Status.Conditions, mcoperatorv1.ConditionReady)).To(gomega.BeTrue(), "%s: %+v", m.Name, m.Status)
	})
}

// script has the agents play a script.
func (p plane) script(t *testing.T, o client.Object, script string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, hollow.AnnotationScript, script)
	if err := p.client.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}
