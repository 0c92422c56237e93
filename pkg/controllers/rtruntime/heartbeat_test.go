package rtruntime_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	heart "github.com/mainspring-rt/mainspring/pkg/heartbeat"
)

// renews writes the Lease of a node's agent, as agents do; at is what the agent's clock says.
func (c *cluster) renews(node string, at time.Time) {
	c.Helper()
	l := heart.Lease(node, c.rtNode(node).UID, at)
	err := c.Create(c.Context(), l.DeepCopy())
	if apierrors.IsAlreadyExists(err) {
		there := &coordinationv1.Lease{}
		c.must(c.Get(c.Context(), client.ObjectKeyFromObject(l), there))
		there.Spec, there.OwnerReferences = l.Spec, l.OwnerReferences
		err = c.Update(c.Context(), there)
	}
	c.must(err)
	c.Cleanup(func() { c.must(client.IgnoreNotFound(c.Delete(context.Background(), l))) })
}

// becomes waits until the condition AgentAlive is what it should be.
func (c *cluster) becomes(node string, want metav1.ConditionStatus) {
	c.Helper()
	for range int(patience / (50 * time.Millisecond)) {
		r := &v1alpha1.RTNode{}
		err := c.Get(c.Context(), client.ObjectKey{Name: node}, r)
		if alive := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionAgentAlive); err == nil && alive != nil && alive.Status == want {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	c.Fatalf("AgentAlive is not %s", want)
}

// An agent that renews its Lease lives, whatever its clock says and however old its status is; one that does not is silent; and the Lease alone tells
// when it is back.
func TestAnAgentLivesByItsLease(t *testing.T) {
	c := newCluster(t)
	n := c.node("n", 1)
	clk := clocktesting.NewFakeClock(start)
	silence := time.Second // after which the loop looks again, by the clock of the machine
	c.controllerBy(clk, silence)
	c.becomes(n.Name, metav1.ConditionUnknown)
	c.agentReports(n.Name, heartbeat(start))
	c.becomes(n.Name, metav1.ConditionTrue)
	for _, at := range []time.Time{start.Add(time.Hour), start.Add(-time.Hour)} { // an agent whose clock jumps
		clk.Step(silence)
		c.becomes(n.Name, metav1.ConditionFalse)
		c.renews(n.Name, at)
		c.becomes(n.Name, metav1.ConditionTrue)
	}
	clk.Step(silence)
	c.becomes(n.Name, metav1.ConditionFalse)
	c.must(c.Delete(t.Context(), heart.Lease(n.Name, c.rtNode(n.Name).UID, start)))
	c.stays(n.Name, metav1.ConditionFalse) // that it is taken away is no sign of life
}

// stays expects the condition to be the same however often the loop looks, for which the Node is changed.
func (c *cluster) stays(node string, want metav1.ConditionStatus) {
	c.Helper()
	for i := range 20 {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		c.must(c.Patch(c.Context(), n, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"look":"%d"}}}`, i))))
		r := c.rtNode(node)
		if alive := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionAgentAlive); alive == nil || alive.Status != want {
			c.Fatalf("AgentAlive is %v, want %s", alive, want)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
