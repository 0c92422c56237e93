package provisioning_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	karpfake "sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	static "sigs.k8s.io/karpenter/pkg/controllers/static/provisioning"
	karptest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/mainspring-rt/mainspring/pkg/controllers/provisioning"
)

// scriptedProvider is one whose launches end as the test says.
type scriptedProvider struct {
	*karpfake.CloudProvider
	err error
}

func (p *scriptedProvider) Create(context.Context, *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	return &karpv1.NodeClaim{}, p.err
}

// staticPool is a static NodePool with its controller.
type staticPool struct {
	testing.TB
	*scriptedProvider
	clock    *clocktesting.FakeClock
	launches *provisioning.Launches
	static   *provisioning.Static
	api      client.Client
	recorder *karptest.EventRecorder
}

func newStaticPool(t *testing.T) *staticPool {
	t.Helper()
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "fixed"}} // not Ready, so that Karpenter's controller does nothing
	pool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.test.sh", Kind: "TestNodeClass", Name: "fixed"}
	s := &staticPool{
		TB: t, scriptedProvider: &scriptedProvider{CloudProvider: karpfake.NewCloudProvider()}, clock: clocktesting.NewFakeClock(time.Now().Truncate(time.Second)), recorder: karptest.NewEventRecorder(),
		api: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(pool).WithStatusSubresource(pool).Build(),
	}
	s.launches = provisioning.NewLaunches(s.scriptedProvider, s.clock)
	s.static = provisioning.NewStatic(provisioning.StaticDependencies{Clock: s.clock, Client: s.api, Recorder: s.recorder, Launches: s.launches},
		static.NewController(s.api, nil, s.recorder, s.launches, nil, s.clock, nil, nil))
	return s
}

// launch has a NodeClaim of the pool launched, with an outcome.
func (s *staticPool) launch(err error) {
	s.Helper()
	s.err = err
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{karpv1.NodePoolLabelKey: "fixed"}}}
	if _, got := s.launches.Create(s.Context(), claim); !errors.Is(got, err) {
		s.Errorf("it says %v, and the provider said %v", got, err)
	}
}

// look returns when the pool is looked at again, and its condition.
func (s *staticPool) look() (again time.Duration, message string) {
	s.Helper()
	pool := &karpv1.NodePool{}
	read := func() {
		if err := s.api.Get(s.Context(), client.ObjectKey{Name: "fixed"}, pool); err != nil {
			s.Fatal(err)
		}
	}
	read()
	result, err := s.static.Reconcile(s.Context(), pool)
	if err != nil {
		s.Fatal(err)
	}
	read()
	condition := pool.StatusConditions().Get(provisioning.ConditionCapacityAvailable)
	if condition.IsTrue() {
		return result.RequeueAfter, ""
	}
	return result.RequeueAfter, condition.Message
}

// A static pool whose machines are sold out is launched for again after 10 s, and twice as long each time up to five minutes, and says why.
func TestASoldOutStaticPoolBacksOff(t *testing.T) {
	s := newStaticPool(t)
	soldOut := cloudprovider.NewInsufficientCapacityError(errors.New("no edge-4 in zone b"))
	if again, message := s.look(); again != 0 || message != "" {
		t.Errorf("at first it rests for %s: %s", again, message)
	}
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		for range 3 { // those of several replicas fail together
			s.launch(soldOut)
		}
		again, message := s.look()
		if again != want*time.Second || !strings.Contains(message, "no edge-4 in zone b") || !strings.Contains(message, s.clock.Now().Add(again).UTC().Format(time.RFC3339)) {
			t.Errorf("it rests for %s, want %d s: %s", again, want, message)
		}
		s.clock.Step(again - time.Second)
		if again, _ := s.look(); again != time.Second {
			t.Errorf("a second before the next launch it rests for %s", again)
		}
		s.clock.Step(time.Second)
		if again, _ := s.look(); again != 0 {
			t.Errorf("it rests for %s though the next launch is due", again)
		}
	}
	if n := s.recorder.Calls(provisioning.ReasonLaunchFailed); n == 0 {
		t.Error("no Event tells of it")
	}
	s.launch(nil)
	if again, message := s.look(); again != 0 || message != "" {
		t.Errorf("after a launch it rests for %s: %s", again, message)
	}
	s.launch(soldOut)
	if again, _ := s.look(); again != 10*time.Second {
		t.Errorf("after a launch the first failure rests for %s", again)
	}
}

// What leaves the NodeClaim in place is tried again by its own loop.
func TestOtherFailuresAreNoReasonToBackOff(t *testing.T) {
	s := newStaticPool(t)
	s.launch(errors.New("the API of the cloud answers 500"))
	if again, message := s.look(); again != 0 || message != "" {
		t.Errorf("it rests for %s: %s", again, message)
	}
	s.launch(cloudprovider.NewNodeClassNotReadyError(errors.New("no such image")))
	if again, message := s.look(); again != 10*time.Second || !strings.Contains(message, "no such image") {
		t.Errorf("it rests for %s: %s", again, message)
	}
}

// Of a NodePool of another provider it says nothing.
func TestAPoolOfAnotherProviderIsLeftAlone(t *testing.T) {
	s := newStaticPool(t)
	pool := &karpv1.NodePool{}
	if err := s.api.Get(t.Context(), client.ObjectKey{Name: "fixed"}, pool); err != nil {
		t.Fatal(err)
	}
	pool.Spec.Template.Spec.NodeClassRef.Kind = "Elsewhere"
	s.launch(cloudprovider.NewInsufficientCapacityError(errors.New("sold out")))
	if result, err := s.static.Reconcile(t.Context(), pool); err != nil || result.RequeueAfter != 0 {
		t.Errorf("%+v, %v", result, err)
	}
	if err := s.api.Get(t.Context(), client.ObjectKey{Name: "fixed"}, pool); err != nil || len(pool.Status.Conditions) != 0 {
		t.Errorf("%v: conditions %+v", err, pool.Status.Conditions)
	}
}
