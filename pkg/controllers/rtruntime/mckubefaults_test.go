package rtruntime_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

func TestAForeignTemplateIsNotUsed(t *testing.T) {
	o := newCluster(t).office()
	m := statetest.McKube("default", o.prefix+"m", o.prefix+"p", "High", 20, 20)
	template, err := rtdra.Template(m, granularity)
	o.must(err)
	template.OwnerReferences = nil
	o.must(o.Create(t.Context(), template))
	o.mckube("m", "p", 20, 20)
	_, err = o.serve("m") // the finalizer
	o.must(err)
	if _, err = o.serve("m"); err == nil || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("error %v", err)
	}
	o.is("m", mcv1.ConditionAdmitted, metav1.ConditionFalse, "NameTaken")
	o.must(o.Delete(t.Context(), template))
	o.settle(nil, "m")
	o.is("m", mcv1.ConditionAdmitted, metav1.ConditionFalse, "NoPod")
}

func TestAForeignClaimIsNotTaken(t *testing.T) {
	o := newCluster(t).office()
	n := o.node("n", 1)
	p := o.bare("p", n.Name, "app")
	other := statetest.Claim(p, p.Name+"-app-rt", "app", "", 0, 0)
	other.UID, other.OwnerReferences, other.Annotations = "", nil, nil
	other.Spec.Devices.Requests[0].Exactly.AllocationMode, other.Spec.Devices.Requests[0].Exactly.Count = resourcev1.DeviceAllocationModeExactCount, 1
	o.must(o.Create(t.Context(), other))
	o.mckube("m", "p", 20, 20)
	_, err := o.serve("m")
	o.must(err)
	if _, err = o.serve("m"); err == nil || !strings.Contains(err.Error(), "does not belong to the pod") {
		t.Errorf("error %v", err)
	}
	o.is("m", mcv1.ConditionAdmitted, metav1.ConditionFalse, "NameTaken")
}

func TestTwoMcKubesOfOnePodDoNotDisturbEachOther(t *testing.T) {
	o := newCluster(t).office()
	n := o.node("n", 2)
	p := o.bare("p", n.Name, "app", "side")
	for container, budget := range map[string]int64{"app": 60, "side": 50} {
		m := statetest.McKube("default", o.prefix+container, p.Name, "High", budget, budget)
		m.UID, m.Spec.Container = "", container
		o.must(o.Create(t.Context(), m))
	}
	o.settle([]string{n.Name}, "app", "side")
	if got := o.annotation(p, mcv1.AnnotationRuntimeLow); got != "app=60000,side=50000" {
		t.Errorf("budgets %s", got)
	}
	if got := o.annotation(p, mcv1.AnnotationCore); got != "app=0,side=1" && got != "app=1,side=0" {
		t.Errorf("cores %s", got)
	}
	o.must(o.Delete(t.Context(), o.get("side")))
	o.settle([]string{n.Name}, "app", "side")
	if got := o.annotation(p, mcv1.AnnotationRuntimeLow); got != "60000" {
		t.Errorf("budgets without the one: %s", got)
	}
	if got := o.cores(p); !strings.HasPrefix(got, "app-rt=601000@core-") || strings.Contains(got, "side") {
		t.Errorf("claims without the one: %s", got)
	}
	o.is("app", mcv1.ConditionPlaced, metav1.ConditionTrue, "Ready")
}

func TestTheYoungerGovernsWhenTheOlderHasGone(t *testing.T) {
	o := newCluster(t).office()
	n := o.node("n", 1)
	p := o.bare("p", n.Name, "app")
	o.mckube("a", "p", 20, 20)
	o.mckube("b", "p", 30, 30)
	o.settle([]string{n.Name}, "a", "b")
	o.is("a", mcv1.ConditionPlaced, metav1.ConditionTrue, "Ready")
	o.is("b", mcv1.ConditionReady, metav1.ConditionFalse, "Conflict")
	if got := o.told.reasons(o.prefix + "b"); !slices.Equal(got, []string{"Conflict"}) {
		t.Errorf("told %v", got)
	}
	o.must(o.Delete(t.Context(), o.get("a")))
	o.settle([]string{n.Name}, "a", "b")
	o.is("b", mcv1.ConditionPlaced, metav1.ConditionTrue, "Ready")
	if got, want := spec(o.rtNode(n.Name).Spec), p.Name+"@0 low 30/30"; got != want {
		t.Errorf("the spec is %s, want %s", got, want)
	}
}

// A McKube that is deleted while its pod runs: the claim is let go only after the node was told, the finalizer goes
// last, whatever write the controller dies before; the pod runs on without a trace of it.
func TestADeletedMcKubeLetsItsContainerGo(t *testing.T) {
	for _, at := range append([]int{0}, sampling.Points(t, 1, 7, deathsPerStory)...) {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			o := newCluster(t).office()
			o.prefix += fmt.Sprintf("%d-", at)
			n := o.node("n", 1)
			p := o.bare("p", n.Name, "app")
			m := o.mckube("m", "p", 20, 20)
			o.settle([]string{n.Name}, "m")
			o.Writes, o.DieAt = 0, at
			o.must(o.Delete(t.Context(), m))
			wait, err := o.serve("m")
			o.must(err)
			if wait <= 0 || o.Writes != 0 || o.cores(p) == "" {
				t.Errorf("before the node was told: looks again after %s, %d writes, claims %q", wait, o.Writes, o.cores(p))
			}
			o.settle([]string{n.Name}, "m")
			if err := o.Get(t.Context(), o.key("m"), m); !apierrors.IsNotFound(err) {
				t.Errorf("the McKube is there: %v", err)
			}
			if len(o.rtNode(n.Name).Spec.Servers) > 0 || o.cores(p) != "" {
				t.Errorf("left: %s, claims %q", spec(o.rtNode(n.Name).Spec), o.cores(p))
			}
			if got := o.annotation(p, mcv1.AnnotationPeriod) + o.annotation(p, mcv1.AnnotationCore) + o.annotation(p, mcv1.AnnotationPending); got != "true" {
				t.Errorf("annotations left: %s", got)
			}
			if at == 0 && !slices.Equal(o.told.reasons(p.Name), []string{"Released"}) {
				t.Errorf("told on the pod %v", o.told.reasons(p.Name))
			}
		})
	}
}

// A pod that goes, or is replaced by one of its name, while it is being adopted leaves nothing on the other.
func TestAPodThatGoesWhileItIsAdopted(t *testing.T) {
	o := newCluster(t).office()
	n := o.node("n", 1)
	p := o.bare("p", n.Name, "app")
	o.mckube("m", "p", 20, 20)
	_, err := o.serve("m") // the finalizer
	o.must(err)
	o.look() // still shows the pod
	o.must(o.Delete(t.Context(), p, client.GracePeriodSeconds(0)))
	again := o.bare("p", n.Name, "app")
	_, err = o.mckubes.Reconcile(t.Context(), reconcile.Request{NamespacedName: o.key("m")})
	o.must(err)
	if got := o.annotation(again, mcv1.AnnotationPeriod); got != "" || len(o.held(again)) > 0 {
		t.Errorf("the namesake was told %q and holds %s", got, o.cores(again))
	}
	// The claim of the pod that is gone is the garbage collector's; until then the name is taken.
	if _, err := o.serve("m"); err == nil {
		t.Error("nothing is said of the claim of the earlier pod")
	}
	o.is("m", mcv1.ConditionAdmitted, metav1.ConditionFalse, "NameTaken")
	o.collect(p)
	o.settle([]string{n.Name}, "m")
	if got := o.cores(again); got != "app-rt=201000@core-0" {
		t.Errorf("claims %s", got)
	}
}

// What was decided on an old version is not written over a new one, and tried again soon.
func TestAConflictOfAMcKubeIsTriedAgain(t *testing.T) {
	o := newCluster(t).office()
	n := o.node("n", 1)
	p := o.bare("p", n.Name, "app")
	o.mckube("m", "p", 20, 20)
	_, err := o.serve("m") // the finalizer
	o.must(err)
	o.look()
	o.change("m", func(m *mcv1.McKube) { m.Labels = map[string]string{"touched": "yes"} })
	result, err := o.mckubes.Reconcile(t.Context(), reconcile.Request{NamespacedName: o.key("m")})
	o.must(err)
	if m := o.get("m"); result.RequeueAfter <= 0 || result.RequeueAfter > time.Second || m.Spec.Node != "" || len(m.Status.Conditions) > 0 {
		t.Errorf("looks again after %s, node %q, status %+v", result.RequeueAfter, m.Spec.Node, m.Status)
	}
	o.settle([]string{n.Name}, "m")
	if m := o.get("m"); m.Spec.Node != n.Name || m.Labels["touched"] != "yes" || o.cores(p) == "" {
		t.Errorf("McKube %+v, claims %s", m, o.cores(p))
	}
}

// A cache that is not complete decides nothing.
func TestNothingIsDoneBeforeTheCacheIsComplete(t *testing.T) {
	o := newCluster(t).office()
	o.mckube("m", "p", 20, 20)
	early := rtruntime.NewMcKubes(rtruntime.Dependencies{Store: state.New(state.Options{}), Client: o.Client, Clock: o.clock, Recorder: o.told})
	result, err := early.Reconcile(t.Context(), reconcile.Request{NamespacedName: o.key("m")})
	o.must(err)
	if result.RequeueAfter <= 0 || len(o.get("m").Finalizers) > 0 {
		t.Errorf("looks again after %s, finalizers %v", result.RequeueAfter, o.get("m").Finalizers)
	}
}
