package state_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

func server(id string, criticality rt.Criticality, lowMs, highMs int64) rt.Server {
	return rt.Server{ID: id, Criticality: criticality, Period: 100_000, Low: lowMs * 1000, High: highMs * 1000}
}

func view(t *testing.T, s *state.Snapshot, node string) *state.NodeView {
	t.Helper()
	n, ok := s.NodeView(node)
	if !ok {
		t.Fatalf("node %s is unknown", node)
	}
	return n
}

func TestANodeShowsBothPackings(t *testing.T) {
	t.Parallel()
	n := statetest.Node("n", "n-1")
	p := statetest.On(statetest.WithClaim(statetest.Pod("default", "p", "p-1", "app"), "app", "p-claim"), "n")
	s := statetest.Build(n, statetest.Slice(n, statetest.Cores(3)...), p, statetest.McKube("default", "m", "p", "High", 20, 30),
		statetest.Claim(p, "p-claim", "app", "n", 1, 301_000), statetest.RTNode(n, statetest.RTServer(p, "app", 2)))
	got := view(t, s, "n")
	v, ok := got.Server("p-1/app")
	if !ok || v.Witness != 1 || v.Physical != 2 || !v.Running || v.McKube.Name != "m" || v.Claim.Name != "p-claim" {
		t.Fatalf("server is %+v", v)
	}
	for core, want := range map[int]state.CoreView{0: {Free: 900_000}, 1: {Claimed: 301_000, Free: 599_000}, 2: {Placed: 101_000, Free: 900_000}} {
		c, _ := got.Core(core)
		if c.Claimed != want.Claimed || c.Placed != want.Placed || c.Free != want.Free {
			t.Errorf("core %d is %+v, want %+v", core, *c, want)
		}
	}
	in := got.RT()
	if len(in.Cores) != 3 || len(in.Servers) != 1 || in.Current["p-1/app"] != 2 || in.Witness["p-1/app"] != 1 {
		t.Errorf("what Arrange gets is %+v", in)
	}
}

// The whole budget is booked once, on the core that was given; not on every core that was preferred.
func TestABudgetIsBookedOnceAndOnTheCoreThatWasGiven(t *testing.T) {
	t.Parallel()
	n := statetest.Node("n", "n-1")
	p := statetest.On(statetest.WithClaim(statetest.Pod("default", "p", "p-1", "app"), "app", "p-claim"), "n")
	m := statetest.McKube("default", "m", "p", "High", 20, 30)
	cores := "2-3"
	m.Spec.RTSettings.Core = &cores
	got := view(t, statetest.Build(n, statetest.Slice(n, statetest.Cores(4)...), p, m, statetest.Claim(p, "p-claim", "app", "n", 0, 301_000)), "n")
	total := rt.PPM(0)
	for _, c := range got.Cores {
		total += c.Claimed
	}
	if c, _ := got.Core(0); c.Claimed != 301_000 || total != 301_000 {
		t.Errorf("cores are %+v", got.Cores)
	}
}

// If the claim is larger than the settings (they were lowered since), the scheduler counts the claim. If it is smaller, the
// settings ask for more than any claim has paid for.
func TestTheClaimIsChargedWhateverTheSettings(t *testing.T) {
	t.Parallel()
	n := statetest.Node("n", "n-1")
	p := statetest.On(statetest.WithClaim(statetest.Pod("default", "p", "p-1", "app"), "app", "p-claim"), "n")
	for claimed, want := range map[rt.PPM]rt.PPM{500_000: 500_000, 100_000: 100_000} {
		got := view(t, statetest.Build(n, statetest.Slice(n, statetest.Cores(1)...), p, statetest.McKube("default", "m", "p", "High", 20, 30), statetest.Claim(p, "p-claim", "app", "n", 0, claimed)), "n")
		if got.Cores[0].Claimed != want {
			t.Errorf("claim of %d: %d is claimed, want %d", claimed, got.Cores[0].Claimed, want)
		}
		if load := got.Claims(&got.Cores[0]); load.Used() != want {
			t.Errorf("claim of %d: the test sees %d, want %d", claimed, load.Used(), want)
		}
	}
}

// A budget that grew is paid by a second claim on the same core.
func TestClaimsOfOneContainerAddUp(t *testing.T) {
	t.Parallel()
	n := statetest.Node("n", "n-1")
	p := statetest.On(statetest.WithClaim(statetest.Pod("default", "p", "p-1", "app"), "app", "p-claim"), "n")
	first, second, elsewhere := statetest.Claim(p, "p-claim", "app", "n", 1, 200_000), statetest.Claim(p, "a-younger", "app", "n", 1, 150_000), statetest.Claim(p, "p-stray", "app", "n", 0, 70_000)
	second.UID, elsewhere.UID = "claim-2", "claim-3"
	second.CreationTimestamp = metav1.NewTime(statetest.Birth.Add(time.Second))
	elsewhere.CreationTimestamp = metav1.NewTime(statetest.Birth.Add(time.Minute))
	got := view(t, statetest.Build(n, statetest.Slice(n, statetest.Cores(2)...), p, statetest.McKube("default", "m", "p", "High", 20, 30), second, first, elsewhere), "n")
	v, _ := got.Server("p-1/app")
	if v.Claimed != 350_000 || v.Witness != 1 || v.Claim.Name != "p-claim" {
		t.Errorf("server is %+v", v)
	}
	if len(got.Servers) != 2 || got.Cores[1].Claimed != 350_000 || got.Cores[0].Claimed != 70_000 {
		t.Errorf("servers are %+v, cores %+v", got.Servers, got.Cores)
	}
}

func TestAClaimOfAGonePodKeepsItsBandwidth(t *testing.T) {
	t.Parallel()
	n := statetest.Node("n", "n-1")
	gone := statetest.Pod("default", "p", "p-1", "app")
	again := statetest.On(statetest.Pod("default", "p", "p-2", "app"), "n")
	got := view(t, statetest.Build(n, statetest.Slice(n, statetest.Cores(1)...), again, statetest.McKube("default", "m", "p", "High", 20, 30), statetest.Claim(gone, "p-claim", "app", "n", 0, 400_000)), "n")
	if v, ok := got.Server("p-2/app"); !ok || v.Witness != rt.NoCore || v.Claim != nil {
		t.Errorf("the new pod of the name is %+v", v)
	}
	if v, ok := got.Server("claim/claim-p-1-app"); !ok || !v.Claimant() || v.Witness != 0 {
		t.Errorf("the claim is %+v", v)
	}
	if got.Cores[0].Claimed != 400_000 {
		t.Errorf("claimed is %d", got.Cores[0].Claimed)
	}
	if _, ok := statetest.Build().Victims(server("x", rt.High, 80, 80)); ok {
		t.Error("an empty cluster has victims")
	}
}

func TestAFinishedPodIsNoServer(t *testing.T) {
	t.Parallel()
	n := statetest.Node("n", "n-1")
	p := statetest.On(statetest.WithClaim(statetest.Pod("default", "p", "p-1", "app"), "app", "p-claim"), "n")
	p.Status.Phase = corev1.PodSucceeded
	objects := []runtime.Object{n, statetest.Slice(n, statetest.Cores(1)...), p, statetest.McKube("default", "m", "p", "High", 20, 30)}
	if got := view(t, statetest.Build(objects...), "n"); len(got.Servers) != 0 {
		t.Errorf("servers are %+v", got.Servers)
	}
	got := view(t, statetest.Build(append(objects, statetest.Claim(p, "p-claim", "app", "n", 0, 301_000))...), "n")
	if len(got.Servers) != 1 || !got.Servers[0].Claimant() || got.Cores[0].Claimed != 301_000 {
		t.Errorf("servers are %+v: its claim counts until it is taken back", got.Servers)
	}
}

// A node that was re-created under its name has neither the slices nor the RTNode of its predecessor.
func TestANodeThatWasRecreatedStartsAnew(t *testing.T) {
	t.Parallel()
	before, now := statetest.Node("n", "n-1"), statetest.Node("n", "n-2")
	got := view(t, statetest.Build(now, statetest.Slice(before, statetest.Cores(2)...), statetest.RTNode(before)), "n")
	if got.RTNode != nil || !got.Stale || got.Offered || len(got.Cores) != 0 || got.UID != "n-2" {
		t.Errorf("node is %+v", got)
	}
	// A late deletion of the predecessor changes nothing.
	store, err := state.Build(state.Options{}, now, statetest.Slice(now, statetest.Cores(2)...))
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(before); err != nil {
		t.Fatal(err)
	}
	if got := view(t, store.Snapshot(), "n"); got.UID != "n-2" || len(got.Cores) != 2 {
		t.Errorf("node is %+v", got)
	}
}

// When the agent's slices vanish, what runs stays on the cores that the RTNode reported; nothing new comes.
func TestWithoutSlicesTheReportedCoresStay(t *testing.T) {
	t.Parallel()
	n := statetest.Node("n", "n-1")
	p := statetest.On(statetest.Pod("default", "p", "p-1", "app"), "n")
	r := statetest.RTNode(n, statetest.RTServer(p, "app", 0))
	r.Status.Cores = []v1alpha1.RTCoreStatus{{ID: 0, Sibling: -1, CapacityPpm: 900_000}}
	s := statetest.Build(n, p, r, statetest.McKube("default", "m", "p", "High", 20, 30))
	got := view(t, s, "n")
	if got.Offered || len(got.Cores) != 1 || got.Cores[0].Placed != 101_000 {
		t.Errorf("node is %+v", got)
	}
	if c, gates := s.BestCore(server("x", rt.Low, 1, 1)); len(gates) == 0 {
		t.Errorf("%+v takes a new server", c)
	}
}

func TestTheOlderOfTwoMcKubesGoverns(t *testing.T) {
	t.Parallel()
	p := statetest.Pod("default", "p", "p-1", "app", "side")
	older, younger, other := statetest.McKube("default", "z", "p", "High", 20, 30), statetest.McKube("default", "a", "p", "Low", 1, 1), statetest.McKube("default", "b", "p", "Low", 2, 2)
	older.Spec.Container, younger.Spec.Container, other.Spec.Container = "app", "app", "side"
	younger.CreationTimestamp = metav1.NewTime(statetest.Birth.Add(time.Second))
	s := statetest.Build(p, older, younger, other)
	got, _ := s.PodNamed("default", "p")
	if len(got.Governed) != 2 || got.Governed[0].McKube != older || len(got.Governed[0].Rivals) != 1 || got.Governed[0].Rivals[0] != younger || got.Governed[1].McKube != other {
		t.Errorf("governed is %+v", got.Governed)
	}
	if all := s.McKubesFor(p); len(all) != 3 || all[2] != younger {
		t.Errorf("all that match: %+v", all)
	}
	for _, m := range []*mcv1.McKube{older, younger, other} {
		if pods := s.PodsFor(m); len(pods) != 1 {
			t.Errorf("pods: %+v", pods)
		}
	}
}

func TestNothingIsAnsweredTooEarly(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakeClock(statetest.Birth)
	store := state.New(state.Options{Clock: clk})
	n, p := statetest.Node("n", "n-1"), statetest.Pod("default", "p", "p-1", "app")
	update := func(objects ...runtime.Object) {
		t.Helper()
		for _, o := range objects {
			if err := store.Update(o); err != nil {
				t.Fatal(err)
			}
		}
	}
	expect := func(want string) {
		t.Helper()
		if err := store.Synced(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Fatalf("synced is %v, want %q", err, want)
		}
	}
	update(statetest.Claim(p, "p-claim", "app", "n", 0, 300_000))
	expect("first lists")
	if got := len(store.Snapshot().Dump()); got != len(statetest.Build().Dump()) {
		t.Errorf("the snapshot has something to say before the lists are complete")
	}
	store.Complete()
	expect("names node n")
	update(n)
	expect("names pod p-1")
	update(p)
	expect("")

	late := state.New(state.Options{Clock: clk})
	if err := late.Update(statetest.Claim(p, "p-claim", "app", "n", 0, 300_000)); err != nil {
		t.Fatal(err)
	}
	late.Complete()
	store = late
	expect("names node n")
	clk.Step(10 * time.Second)
	expect("") // it is gone, and stays charged to its core
}

func TestListenersHearWhatChanged(t *testing.T) {
	t.Parallel()
	store := state.New(state.Options{})
	var heard []state.Change
	store.Listen(func(c state.Change) { heard = append(heard, c) })
	n := statetest.Node("n", "n-1")
	for _, o := range []runtime.Object{n, statetest.Slice(n, statetest.Cores(1)...), statetest.On(statetest.Pod("default", "p", "p-1", "app"), "n")} {
		if err := store.Update(o); err != nil {
			t.Fatal(err)
		}
	}
	store.Complete()
	if err := store.Update(statetest.McKube("default", "m", "p", "High", 20, 30)); err != nil {
		t.Fatal(err)
	}
	if len(heard) != 2 {
		t.Fatalf("heard %+v", heard)
	}
	last := fmt.Sprintf("%v", heard[1])
	if last != "{[n] [default/p] [default/m]}" {
		t.Errorf("heard %s", last)
	}
}

func TestOtherKindsAreRefused(t *testing.T) {
	t.Parallel()
	if _, err := state.Build(state.Options{}, &corev1.Secret{}); err == nil || !strings.Contains(err.Error(), "*v1.Secret") {
		t.Errorf("error is %v", err)
	}
}
