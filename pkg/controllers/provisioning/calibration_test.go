package provisioning_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"
	karptest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/mainspring-rt/mainspring/pkg/controllers/provisioning"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// broken is a provider that knows no instance types for now.
type broken struct {
	karpcloud.CloudProvider
	err error
}

func (b *broken) GetInstanceTypes(ctx context.Context, pool *karpv1.NodePool) ([]*karpcloud.InstanceType, error) {
	if b.err != nil {
		return nil, b.err
	}
	return b.CloudProvider.GetInstanceTypes(ctx, pool)
}

// joined is a node that has joined for a NodeClaim of a machine.
func joined(machine string) (*karpv1.NodeClaim, *corev1.Node) {
	node := statetest.Node("n", "node-uid")
	node.Spec.ProviderID = "test://n"
	claim := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: "claim", UID: "claim-uid", CreationTimestamp: metav1.NewTime(statetest.Birth.Add(-time.Minute)),
			Labels: map[string]string{karpv1.NodePoolLabelKey: "pool", corev1.LabelInstanceTypeStable: machine},
		},
		Status: karpv1.NodeClaimStatus{ProviderID: node.Spec.ProviderID},
	}
	return claim, node
}

func TestNodesWaitForTheirAgents(t *testing.T) {
	_, node := joined("box")
	slice := statetest.Slice(node, statetest.Cores(2)...)
	measured, silent, earlier := statetest.RTNode(node), statetest.RTNode(node), statetest.RTNode(node)
	measured.Status.Backend, measured.Status.BudgetGranularityUs = "fifo", 12
	earlier.Status = measured.Status
	earlier.OwnerReferences[0].UID = "another"
	for name, test := range map[string]struct {
		machine  string
		agent    []runtime.Object
		age      time.Duration
		adopted  time.Duration
		fails    error
		noPool   bool
		disabled bool
		wait     time.Duration
		told     bool
		err      bool
	}{
		"no agent yet":                          {machine: "box", age: 0, wait: time.Second},
		"an agent without a word":               {machine: "box", agent: []runtime.Object{slice, silent}, age: time.Minute, wait: time.Second},
		"that of an earlier node":               {machine: "box", agent: []runtime.Object{slice, earlier}, age: time.Minute, wait: time.Second},
		"measured, nothing offered":             {machine: "box", agent: []runtime.Object{measured}, age: time.Minute, wait: time.Second},
		"measured":                              {machine: "box", agent: []runtime.Object{slice, measured}},
		"measured late":                         {machine: "box", agent: []runtime.Object{slice, measured}, age: time.Hour},
		"the last moment":                       {machine: "box", age: 2*time.Minute - time.Millisecond, wait: time.Millisecond},
		"too late":                              {machine: "box", age: 2 * time.Minute, told: true},
		"a node that was there long before":     {machine: "box", age: time.Hour, adopted: time.Hour - time.Second, wait: time.Second},
		"no real-time cores":                    {machine: "small"},
		"a machine that nobody offers any more": {machine: "gone"},
		"its NodePool is gone":                  {machine: "box", noPool: true},
		"the provider does not answer":          {machine: "box", fails: errors.New("no answer"), age: time.Minute, err: true},
		"the provider never answers":            {machine: "box", fails: errors.New("no answer"), age: time.Hour, told: true},
		"switched off":                          {machine: "box", disabled: true},
	} {
		t.Run(name, func(t *testing.T) {
			claim, node := joined(test.machine)
			if test.adopted > 0 {
				claim.CreationTimestamp = metav1.NewTime(statetest.Birth.Add(test.adopted))
			}
			store, err := state.Build(state.Options{}, append(test.agent, node)...)
			if err != nil {
				t.Fatal(err)
			}
			objects := []client.Object{node}
			if !test.noPool {
				objects = append(objects, nodePool("pool"))
			}
			recorder := karptest.NewEventRecorder()
			api := indexed(t, objects...)
			d := provisioning.CalibrationDependencies{
				Clock: clocktesting.NewFakeClock(statetest.Birth.Add(test.age)), Client: api, Recorder: recorder,
				Provider: &broken{provider(t, api), test.fails}, Store: store, Timeout: 2 * time.Minute,
			}
			if test.disabled {
				d.Timeout = 0
			}
			result, err := provisioning.NewCalibration(d).Registered(t.Context(), claim)
			if (err != nil) != test.err || result.RequeueAfter != test.wait {
				t.Errorf("got %s, %v; want %s", result.RequeueAfter, err, test.wait)
			}
			if told := recorder.Calls(provisioning.ReasonNotCalibrated) == 1; told != test.told {
				t.Errorf("told: %t", told)
			}
		})
	}
}

func TestNodesWithoutNodeAreNotRegistered(t *testing.T) {
	claim, _ := joined("box")
	d := provisioning.CalibrationDependencies{
		Clock: clocktesting.NewFakeClock(statetest.Birth), Client: indexed(t), Store: state.New(state.Options{}), Timeout: time.Minute,
	}
	if _, err := provisioning.NewCalibration(d).Registered(t.Context(), claim); err == nil {
		t.Error("registered")
	}
}

// indexed is a client that finds Nodes by their provider ID, as the controller's cache does.
func indexed(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	known, err := scheme()
	if err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(known).WithObjects(objects...).WithIndex(&corev1.Node{}, "spec.providerID", func(o client.Object) []string {
		return slices.DeleteFunc([]string{o.(*corev1.Node).Spec.ProviderID}, func(id string) bool { return id == "" })
	}).Build()
}
