package rtruntime_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

func TestAMcKubeBeforeItsPodGetsFinalizerTemplateAndStatus(t *testing.T) {
	o := newCluster(t).office()
	m := o.mckube("m", "p", 20, 40)
	o.settle(nil, "m")
	want, err := rtdra.TemplateName(m, granularity)
	o.must(err)
	if got := o.templates(m); !slices.Equal(got, []string{want}) {
		t.Errorf("templates %v, want %s", got, want)
	}
	if got := o.get("m"); !slices.Equal(got.Finalizers, []string{mcv1.Finalizer}) || got.Status.ObservedGeneration != got.Generation {
		t.Errorf("McKube %+v", got)
	}
	o.is("m", mcv1.ConditionReady, metav1.ConditionFalse, "NoPod")
	writes := o.Writes
	o.settle(nil, "m")
	if o.Writes != writes {
		t.Errorf("%d writes though nothing changed", o.Writes-writes)
	}
	// The controller makes a template again that a user deletes.
	o.must(o.DeleteAllOf(t.Context(), &resourcev1.ResourceClaimTemplate{}, client.InNamespace("default")))
	o.settle(nil, "m")
	if got := o.templates(m); len(got) != 1 {
		t.Errorf("templates after one was deleted: %v", got)
	}
}

// Whatever write the controller dies before, the next one gives the container one claim with one core,
// tells the pod, and fills in the node.
func TestARunningPodIsAdoptedWhateverHappens(t *testing.T) {
	for _, at := range append([]int{0}, sampling.Points(t, 1, 8, deathsPerStory)...) {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			o := newCluster(t).office()
			o.prefix += fmt.Sprintf("%d-", at)
			n := o.node("n", 2)
			p := o.bare("p", n.Name, "app")
			o.DieAt = at
			o.mckube("m", "p", 20, 40)
			o.settle([]string{n.Name}, "m")
			if got, want := o.cores(p), "app-rt=401000@core-0"; got != want {
				t.Errorf("claims %s, want %s", got, want)
			}
			if got := o.annotation(p, mcv1.AnnotationCore) + o.annotation(p, mcv1.AnnotationPending); got != "0" {
				t.Errorf("the pod is told %s", got)
			}
			m := o.get("m")
			if m.Spec.Node != n.Name || m.Annotations[mcv1.AnnotationFilledNode] != n.Name || mcv1.UserNode(m) != "" {
				t.Errorf("node %q, filled in %q", m.Spec.Node, m.Annotations[mcv1.AnnotationFilledNode])
			}
			o.is("m", mcv1.ConditionPlaced, metav1.ConditionTrue, "Ready")
			if got := o.told.reasons(m.Name); len(got) > 1 || at == 0 && !slices.Equal(got, []string{"Adopted"}) {
				t.Errorf("told %v", got)
			}
		})
	}
}

func TestAFilledInNodeFollowsThePodAndTheUsersDoesNot(t *testing.T) {
	o := newCluster(t).office()
	a, b := o.node("a", 1), o.node("b", 1)
	p := o.bare("p", a.Name, "app")
	o.mckube("m", "p", 20, 20)
	o.settle(nil, "m")
	o.must(o.Delete(t.Context(), p, client.GracePeriodSeconds(0)))
	o.collect(p)
	o.bare("p", b.Name, "app")
	o.settle(nil, "m")
	if got := o.get("m"); got.Spec.Node != b.Name || got.Annotations[mcv1.AnnotationFilledNode] != b.Name {
		t.Errorf("node %s, filled in %s, want %s", got.Spec.Node, got.Annotations[mcv1.AnnotationFilledNode], b.Name)
	}
	o.change("m", func(m *mcv1.McKube) { m.Spec.Node = "wished" })
	o.settle(nil, "m")
	if got := o.get("m"); got.Spec.Node != "wished" {
		t.Errorf("the user's node became %s", got.Spec.Node)
	}
}

func TestWhereThereIsNoRoomTheContainerStaysOrdinary(t *testing.T) {
	o := newCluster(t).office()
	n := o.node("n", 1)
	o.run("big", n.Name, "High", 60, 60, 0)
	full := o.bare("full", n.Name, "app")
	o.mckube("f", "full", 50, 50)
	none := o.bare("none", o.prefix+"plain", "app")
	o.mckube("none", "none", 50, 50)
	o.settle([]string{n.Name}, "f", "none")
	o.is("f", mcv1.ConditionAdmitted, metav1.ConditionFalse, "NoCoreFits")
	o.is("none", mcv1.ConditionAdmitted, metav1.ConditionFalse, "NodeHasNoCores")
	if got := o.cores(full) + o.cores(none); got != "" {
		t.Errorf("claims %s", got)
	}
	for _, name := range []string{"f", "none"} {
		if got := o.told.reasons(o.prefix + name); !slices.Equal(got, []string{"NotAdmitted"}) {
			t.Errorf("told of %s: %v", name, got)
		}
	}
	// When room comes, it is adopted.
	big := statetest.Pod("default", o.prefix+"big", "")
	o.must(o.Delete(t.Context(), big, client.GracePeriodSeconds(0)))
	o.must(o.Delete(t.Context(), &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: big.Name + "-claim"}}))
	o.settle([]string{n.Name}, "f")
	if got := o.cores(full); got != "app-rt=501000@core-0" {
		t.Errorf("claims %s", got)
	}
}

// A budget that grows is paid by a further claim, also when the controller dies between making it and giving it
// the core; one that has no room leaves the old budget in force.
func TestABudgetGrowsOrIsKept(t *testing.T) {
	o := newCluster(t).office()
	n := o.node("n", 1)
	p := o.bare("p", n.Name, "app")
	o.mckube("m", "p", 20, 20)
	o.settle([]string{n.Name}, "m")
	o.change("m", func(m *mcv1.McKube) { m.Spec.RTSettings.RuntimeHi = 50_000 })
	o.Writes, o.DieAt = 0, 3 // template, claim, its core
	o.settle([]string{n.Name}, "m")
	if got, want := o.cores(p), "app-rt=201000@core-0 app-rt-1=300000@core-0"; got != want {
		t.Errorf("claims %s, want %s", got, want)
	}
	if got, want := spec(o.rtNode(n.Name).Spec), p.Name+"@0 low 20/50"; got != want {
		t.Errorf("the spec is %s, want %s", got, want)
	}
	o.run("other", n.Name, "High", 30, 30, 0)
	o.settle([]string{n.Name}, "m")
	o.change("m", func(m *mcv1.McKube) { m.Spec.RTSettings.RuntimeHi = 80_000 })
	o.settle([]string{n.Name}, "m")
	o.is("m", mcv1.ConditionAdmitted, metav1.ConditionFalse, "BudgetKept")
	o.is("m", mcv1.ConditionPlaced, metav1.ConditionTrue, "Ready")
	if got := spec(o.rtNode(n.Name).Spec); !strings.Contains(got, p.Name+"@0 low 20/50") {
		t.Errorf("the spec is %s", got)
	}
	if got := o.told.reasons(o.prefix + "m"); slices.Index(got, "BudgetKept") < 0 || slices.Index(got, "BudgetKept") != len(got)-1 {
		t.Errorf("told %v, want BudgetKept once", got)
	}
}

// A raise that the core of the claim keeps no reserve for is refused in words, and the old settings stay in force.
func TestARaiseBeyondTheReserveIsKept(t *testing.T) {
	o := newCluster(t).office()
	n := o.node("n", 1)
	o.bare("p", n.Name, "app")
	o.mckube("m", "p", 20, 20)
	o.change("m", func(m *mcv1.McKube) { m.Spec.Escalation = &mcv1.Escalation{Admission: mcv1.AdmissionLimited} })
	o.settle([]string{n.Name}, "m")
	o.is("m", mcv1.ConditionAdmitted, metav1.ConditionTrue, "Ready")
	o.change("m", func(m *mcv1.McKube) { m.Spec.RTSettings.RuntimeHi = 50_000 })
	o.settle([]string{n.Name}, "m")
	o.is("m", mcv1.ConditionAdmitted, metav1.ConditionFalse, "BudgetKept")
	if got := spec(o.rtNode(n.Name).Spec); !strings.Contains(got, "@0 low 20/20") {
		t.Errorf("the spec is %s", got)
	}
	o.mckube("other", "q", 20, 20)
	o.bare("q", n.Name, "app")
	o.settle([]string{n.Name}, "m", "other")
	o.is("other", mcv1.ConditionAdmitted, metav1.ConditionTrue, "Ready")
	o.change("m", func(m *mcv1.McKube) { m.Spec.RTSettings.RuntimeHi = 20_000 })
	o.settle([]string{n.Name}, "m")
	o.is("m", mcv1.ConditionAdmitted, metav1.ConditionTrue, "Ready")
}

// When the core of a claim keeps less for raises than before, the settings stay in force, on another core: that its core would not take them any longer
// is told, but not that settings were refused, and not of its neighbours. What is asked for after that is refused.
func TestAReserveThatShrinksRefusesNoSettings(t *testing.T) {
	o := newCluster(t).office()
	n := o.node("n", 2)
	o.reserve(n, 300_000, 300_000)
	o.bare("p", n.Name, "app")
	o.mckube("m", "p", 20, 40)
	o.change("m", func(m *mcv1.McKube) { m.Spec.Escalation = &mcv1.Escalation{Admission: mcv1.AdmissionLimited} })
	neighbour := o.bare("q", n.Name, "app")
	o.mckube("q", "q", 10, 10)
	expect := func(core int, admitted metav1.ConditionStatus, reason string) {
		t.Helper()
		o.settle([]string{n.Name}, "m", "q")
		o.is("m", mcv1.ConditionAdmitted, admitted, reason)
		o.is("m", mcv1.ConditionPlaced, metav1.ConditionTrue, "Ready")
		o.is("q", mcv1.ConditionAdmitted, metav1.ConditionTrue, "Ready")
		if got, want := spec(o.rtNode(n.Name).Spec), fmt.Sprintf("%sp@%d low 20/40", o.prefix, core); !strings.Contains(got, want) {
			t.Errorf("the spec is %s, want %s", got, want)
		}
	}
	expect(0, metav1.ConditionTrue, "Ready")
	if got := o.cores(neighbour); got != "app-rt=101000@core-0" {
		t.Fatalf("the other has %s: it is no neighbour", got)
	}
	o.reserve(n, 100_000, 300_000)
	expect(1, metav1.ConditionFalse, rt.ReasonReserveTooSmall)
	if got := o.told.reasons(o.prefix + "m"); slices.Contains(got, "BudgetKept") {
		t.Errorf("told %v, and nobody has asked for anything", got)
	}
	if got := o.told.saying("NotAdmitted"); !strings.Contains(got, "its raise takes 20.0 % of it, and the core keeps 10.0 % for raises") {
		t.Errorf("it is told %q", got)
	}
	o.change("m", func(m *mcv1.McKube) { m.Spec.RTSettings.RuntimeHi = 50_000 })
	expect(1, metav1.ConditionFalse, "BudgetKept")
}

// Settings that a core refuses to one container change nothing for the others, nor do two such refuse each other.
func TestAWishThatIsRefusedLeavesTheNeighboursReady(t *testing.T) {
	o := newCluster(t).office()
	n := o.node("n", 1)
	names := []string{"greedy", "keen", "same"}
	for _, name := range names {
		o.bare(name, n.Name, "app")
		o.mckube(name, name, 20, 20)
	}
	o.settle([]string{n.Name}, names...)
	o.change("greedy", func(m *mcv1.McKube) { m.Spec.RTSettings.RuntimeHi = 60_000 })
	o.settle([]string{n.Name}, names...)
	o.is("greedy", mcv1.ConditionAdmitted, metav1.ConditionFalse, "BudgetKept")
	o.is("keen", mcv1.ConditionAdmitted, metav1.ConditionTrue, "Ready")
	o.is("same", mcv1.ConditionAdmitted, metav1.ConditionTrue, "Ready")
	o.change("keen", func(m *mcv1.McKube) { m.Spec.RTSettings.RuntimeHi = 40_000 })
	o.settle([]string{n.Name}, names...)
	o.is("keen", mcv1.ConditionAdmitted, metav1.ConditionTrue, "Ready")
	o.is("same", mcv1.ConditionAdmitted, metav1.ConditionTrue, "Ready")
	if got := spec(o.rtNode(n.Name).Spec); !strings.Contains(got, "low 20/40") || strings.Contains(got, "20/60") {
		t.Errorf("the spec is %s", got)
	}
}

func TestTheTemplateGoesWithTheSettings(t *testing.T) {
	o := newCluster(t).office()
	m := o.mckube("m", "p", 20, 20)
	o.settle(nil, "m")
	o.change("m", func(m *mcv1.McKube) { m.Spec.RTSettings = nil })
	o.settle(nil, "m")
	o.clock.Step(time.Minute)
	o.settle(nil, "m")
	if got := o.templates(m); len(got) != 0 {
		t.Errorf("templates without settings: %v", got)
	}
}

func TestFormerTemplatesGoAMinuteAfterTheLastPod(t *testing.T) {
	o := newCluster(t).office()
	m := o.mckube("m", "p", 20, 20)
	o.settle(nil, "m")
	former := o.templates(m)[0]
	p := statetest.WithClaim(statetest.Pod("default", o.prefix+"p", "", "app"), "app", "none")
	p.Spec.Containers[0].Image, p.Spec.ResourceClaims[0].ResourceClaimTemplateName = "none", &former
	o.must(o.Create(t.Context(), p))
	o.change("m", func(m *mcv1.McKube) { m.Spec.RTSettings.RuntimeHi = 30_000 })
	o.settle(nil, "m")
	o.clock.Step(time.Hour)
	o.settle(nil, "m")
	if got := o.templates(m); len(got) != 2 {
		t.Errorf("templates while a pod uses the former: %v", got)
	}
	o.must(o.Delete(t.Context(), p, client.GracePeriodSeconds(0)))
	if wait, err := o.serve("m"); err != nil || wait != time.Minute {
		t.Errorf("looks again after %s, %v", wait, err)
	}
	o.clock.Step(59 * time.Second)
	o.settle(nil, "m")
	if got := o.templates(m); len(got) != 2 {
		t.Errorf("templates after 59 s: %v", got)
	}
	o.clock.SetTime(start.Add(-time.Hour)) // a clock that jumps begins the minute anew
	o.settle(nil, "m")
	o.clock.Step(time.Minute)
	o.settle(nil, "m")
	if got := o.templates(m); len(got) != 1 || got[0] == former {
		t.Errorf("templates after a minute: %v", got)
	}
}
