package simulated_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/simulated"
)

// model drives the provider and its loops as Karpenter and Kubernetes would, with a process that
// dies at drawn writes, and remembers what may never change.
type model struct {
	*world
	crasher *crasher
	added   int
	decided map[types.UID]*karpv1.NodeClaim // what Create returned and is not recorded yet; lost in a crash
	known   map[types.UID]string            // NodeClaim to provider ID and machine, once recorded
	struck  map[string]map[types.UID]bool   // fault to the NodeClaims that felt it
}

// crashFaults are the counted faults of the model, fault-0 and so on.
var crashFaults = []v1alpha1.SimulatedFaultSpec{
	{Type: v1alpha1.FaultShortage, Count: ptr.To[int32](1)},
	{Type: v1alpha1.FaultSlowRegistration, Delay: &metav1.Duration{Duration: 20 * time.Second}, Count: ptr.To[int32](1)},
	{Type: v1alpha1.FaultSpotInterruption, Notice: &metav1.Duration{Duration: 15 * time.Second}, Count: ptr.To[int32](1)},
}

func newModel(t failer) *model {
	m := &model{
		crasher: &crasher{writesLeft: -1}, decided: map[types.UID]*karpv1.NodeClaim{},
		known: map[types.UID]string{}, struck: map[string]map[types.UID]bool{"fault-0": {}, "fault-2": {}},
	}
	m.world = newWorld(t, m.crasher.funcs(), nodePool("pool", requires(karpv1.CapacityTypeLabelKey, "reserved", "spot", "on-demand")))
	for i, spec := range crashFaults {
		m.create(t, fault(fmt.Sprintf("fault-%d", i), spec))
	}
	return m
}

// live runs one step of the process; when it dies, the next one starts with nothing in memory.
func (m *model) live(t failer, step func() error) {
	err := step()
	if m.crasher.dead {
		m.die(t)
		m.shortageStep(t) // so that the same question has another answer after the restart
		return
	}
	if err != nil && !apierrors.IsConflict(errors.Unwrap(err)) {
		t.Fatalf("unexpected error: %v", err)
	}
}

func (m *model) die(t failer) {
	*m.crasher = crasher{writesLeft: -1}
	clear(m.decided)
	m.restart(t)
}

func (m *model) claims(t failer) []karpv1.NodeClaim {
	list := &karpv1.NodeClaimList{}
	if err := m.client.List(context.Background(), list); err != nil {
		t.Fatalf("listing: %v", err)
	}
	return list.Items
}

// add has Karpenter plan a machine.
func (m *model) add(t failer, capacityType string) {
	m.added++
	m.create(t, nodeClaim(fmt.Sprintf("claim-%d", m.added), "pool", requires(karpv1.CapacityTypeLabelKey, capacityType)))
}

// decideStep is the first half of Karpenter's launch of a NodeClaim; other launches may come between
// it and the second half.
func (m *model) decideStep(t failer, claim *karpv1.NodeClaim) {
	if !claim.DeletionTimestamp.IsZero() || claim.Status.ProviderID != "" || m.decided[claim.UID] != nil {
		return
	}
	m.live(t, func() error {
		created, err := m.provider.Create(context.Background(), claim)
		if karpcloud.IsInsufficientCapacityError(err) {
			if strings.Contains(err.Error(), "fault-0") {
				m.struck["fault-0"][claim.UID] = true
			}
			return client.IgnoreNotFound(m.process.Delete(context.Background(), claim))
		}
		if err == nil {
			m.decided[claim.UID] = created
		}
		return err
	})
}

// recordStep is the second half.
func (m *model) recordStep(t failer, claim *karpv1.NodeClaim) {
	created := m.decided[claim.UID]
	if created == nil || !claim.DeletionTimestamp.IsZero() {
		return
	}
	m.live(t, func() error {
		delete(m.decided, claim.UID)
		return m.persist(claim, created)
	})
}

// shortageStep lets small machines run out, or come back.
func (m *model) shortageStep(t failer) {
	f := fault("shortage", v1alpha1.SimulatedFaultSpec{Type: v1alpha1.FaultShortage, Selector: v1alpha1.FaultSelector{
		InstanceTypes: []string{"small"},
	}})
	if err := m.client.Delete(context.Background(), f); apierrors.IsNotFound(err) {
		m.create(t, f)
	}
}

// vanishMeanwhile has a NodeClaim deleted and finalized while its Node is being created.
func (m *model) vanishMeanwhile(t failer) {
	m.crasher.meanwhile = func(node client.Object) {
		deleteClaim(t, m.world, node.GetAnnotations()[v1alpha1.AnnotationNodeClaim])
	}
}

// finalizeStep is Karpenter's lifecycle controller on a NodeClaim that is being deleted, with the
// Node's finalizer already gone.
func (m *model) finalizeStep(t failer, claim *karpv1.NodeClaim) {
	if claim.DeletionTimestamp.IsZero() {
		return
	}
	m.live(t, func() error {
		if claim.Status.ProviderID != "" {
			if err := m.provider.Delete(context.Background(), claim); !karpcloud.IsNodeClaimNotFoundError(err) {
				return err
			}
		}
		stored := claim.DeepCopy()
		claim.Finalizers = nil
		return client.IgnoreNotFound(m.process.Patch(context.Background(), claim, client.MergeFrom(stored)))
	})
}

func (m *model) registerStep(t failer, claim *karpv1.NodeClaim) {
	if !claim.DeletionTimestamp.IsZero() || claim.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue() {
		return
	}
	err := m.client.Get(context.Background(), types.NamespacedName{Name: simulated.NodeName(claim.Name, claim.UID)}, &corev1.Node{})
	if err == nil {
		m.live(t, func() error { return m.register(claim.Name) })
	}
}

func (m *model) reconcileStep(t failer, r func() reconcile.Reconciler, name string) {
	m.live(t, func() error {
		_, err := r().Reconcile(context.Background(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
		return err
	})
}

func (m *model) registrar() reconcile.Reconciler { return m.provider.Registrar() }
func (m *model) striker() reconcile.Reconciler   { return m.provider.Faults() }

// check holds at every moment; it is called after every stage.
func (m *model) check(t failer) {
	m.checkNodes(t)
	reserved := 0
	claims := m.claims(t)
	for i := range claims {
		claim := &claims[i]
		if claim.Labels[v1alpha1.LabelReservationID] == reservationID {
			reserved++
		}
		id, recorded := claim.Annotations[v1alpha1.AnnotationInstance]
		if !recorded {
			continue
		}
		if claim.Annotations[v1alpha1.AnnotationTerminateAt] != "" {
			m.struck["fault-2"][claim.UID] = true
		}
		now := fmt.Sprintf("%s %s at %s", id, describe(claim), claim.Annotations[v1alpha1.AnnotationPricePerHour])
		if before, ok := m.known[claim.UID]; ok && before != now {
			t.Fatalf("NodeClaim %s was %s and is %s", claim.Name, before, now)
		}
		m.known[claim.UID] = now
	}
	if reserved > 2 {
		t.Fatalf("%d machines run in a reservation of 2", reserved)
	}
	for i := range crashFaults {
		name := fmt.Sprintf("fault-%d", i)
		limit := int(*crashFaults[i].Count)
		if n := max(len(m.fault(t, name).Status.Affected), len(m.struck[name])); n > limit {
			t.Fatalf("%s struck %d NodeClaims, it counts to %d", name, n, limit)
		}
	}
}

func (m *model) checkNodes(t failer) {
	owners := map[string]string{}
	for _, node := range m.nodes(t) {
		owner := string(node.OwnerReferences[0].UID)
		if other, ok := owners[owner]; ok {
			t.Fatalf("NodeClaim %s has Nodes %s and %s", owner, other, node.Name)
		}
		owners[owner] = node.Name
	}
}

// pass gives every loop a turn at everything.
func (m *model) pass(t failer) {
	each := func(step func(failer, *karpv1.NodeClaim)) {
		claims := m.claims(t)
		for i := range claims {
			step(t, &claims[i])
		}
	}
	each(m.decideStep)
	each(m.recordStep)
	m.check(t)
	for i := range m.added {
		m.reconcileStep(t, m.registrar, fmt.Sprintf("claim-%d", i+1))
	}
	m.check(t)
	each(m.registerStep)
	for i := range crashFaults {
		m.reconcileStep(t, m.striker, fmt.Sprintf("fault-%d", i))
	}
	m.check(t)
	each(m.finalizeStep)
}

// trouble prepares what may happen in the next pass.
func (m *model) trouble(t *rapid.T) {
	if rapid.Bool().Draw(t, "crash") {
		m.crasher.writesLeft = rapid.IntRange(0, 25).Draw(t, "after writes")
		m.crasher.after = rapid.Bool().Draw(t, "write takes effect")
	}
	if rapid.Bool().Draw(t, "shortage begins or ends") {
		m.shortageStep(t)
	}
	if rapid.Bool().Draw(t, "NodeClaim vanishes while its Node is created") {
		m.vanishMeanwhile(t)
	}
	if m.added < 8 && rapid.Bool().Draw(t, "more work") {
		m.add(t, anyCapacityType.Draw(t, "capacity type"))
	}
	if claims := m.claims(t); len(claims) > 0 && rapid.Bool().Draw(t, "scale down") {
		victim := &claims[rapid.IntRange(0, len(claims)-1).Draw(t, "victim")]
		if err := m.client.Delete(context.Background(), victim); err != nil {
			t.Fatalf("deleting: %v", err)
		}
	}
	m.clock.Step(10 * time.Second)
}

// settle restarts the process, lets it run without trouble, and checks what comes of it.
func (m *model) settle(t failer) {
	m.die(t)
	for range 3 {
		m.clock.Step(time.Minute)
		m.pass(t)
	}
	m.checkSettled(t)
}

// checkSettled: one Node for each NodeClaim, one machine for each, and nothing else.
func (m *model) checkSettled(t failer) {
	wanted := map[string]bool{}
	for _, claim := range m.claims(t) {
		wanted[claim.Status.ProviderID] = true
	}
	nodes := m.nodes(t)
	if len(nodes) != len(wanted) {
		t.Fatalf("%d Nodes for %d NodeClaims", len(nodes), len(wanted))
	}
	machines, err := m.provider.List(context.Background())
	if err != nil || len(machines) != len(wanted) {
		t.Fatalf("%d machines for %d NodeClaims, %v", len(machines), len(wanted), err)
	}
	for _, node := range nodes {
		if !wanted[node.Spec.ProviderID] {
			t.Fatalf("Node %s belongs to no NodeClaim", node.Name)
		}
	}
}

// However often the process dies between two writes, every NodeClaim ends with exactly one Node, no
// Node is left over, a launch once recorded stays what it is, reservations are never overbooked, and
// no fault strikes more NodeClaims than it counts to.
func TestCrashesBetweenAnyTwoWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		for range 4 {
			m.add(t, anyCapacityType.Draw(t, "capacity type"))
		}
		for range rapid.IntRange(2, 6).Draw(t, "passes") {
			m.trouble(t)
			m.pass(t)
		}
		m.settle(t)
	})
}

var anyCapacityType = rapid.SampledFrom([]string{"reserved", "spot", "on-demand"})

// One history, with one crash at every write of it in turn.
func TestCrashAtEveryWrite(t *testing.T) {
	for _, after := range []bool{false, true} {
		for writes := 0; ; writes++ {
			m := newModel(t)
			for _, capacityType := range []string{"on-demand", "reserved", "reserved", "reserved", "spot", "spot"} {
				m.add(t, capacityType)
			}
			m.crasher.writesLeft, m.crasher.after = writes, after
			for range 4 { // long enough for everything to happen
				m.pass(t)
				m.clock.Step(20 * time.Second)
			}
			done := m.crasher.writesLeft > 0
			m.settle(t)
			if t.Failed() {
				t.Fatalf("crash at write %d, which takes effect: %v", writes, after)
			}
			if done {
				break
			}
		}
	}
}
