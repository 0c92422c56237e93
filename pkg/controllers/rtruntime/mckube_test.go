package rtruntime_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// office is a loop over McKubes beside one over nodes, on one cache. The loop over McKubes may be made to die
// at one of its writes.
type office struct {
	*loop
	mckubes       reconcile.Reconciler
	writes, dieAt int
	dieBefore     bool
}

func (c *cluster) office() *office {
	c.Helper()
	o := &office{loop: c.loop()}
	o.hire()
	return o
}

// hire starts a controller that knows nothing of its predecessor.
func (o *office) hire() {
	o.Helper()
	p, err := plane()
	o.must(err)
	config := p.RESTConfig()
	config.QPS = -1
	api, err := client.NewWithWatch(config, client.Options{Scheme: o.Scheme()})
	o.must(err)
	fresh := o.cluster.loop()
	fresh.clock, fresh.told = o.clock, o.told
	o.loop = fresh
	o.mckubes = rtruntime.NewMcKubes(rtruntime.Dependencies{
		Clock: o.clock, Recorder: o.told, Store: o.store, FreedCapacity: func() {},
		Client: interceptor.NewClient(api, interceptor.Funcs{
			Create: func(ctx context.Context, api client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				return o.write(func() error { return api.Create(ctx, obj, opts...) })
			},
			Delete: func(ctx context.Context, api client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
				return o.write(func() error { return api.Delete(ctx, obj, opts...) })
			},
			Patch: func(ctx context.Context, api client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				return o.write(func() error { return api.Patch(ctx, obj, patch, opts...) })
			},
			SubResourceUpdate: func(ctx context.Context, api client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
				return o.write(func() error { return api.SubResource(sub).Update(ctx, obj, opts...) })
			},
			SubResourcePatch: func(ctx context.Context, api client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				return o.write(func() error { return api.SubResource(sub).Patch(ctx, obj, patch, opts...) })
			},
		}),
		InFlight: func(context.Context, *corev1.Pod) bool { return false },
		Options:  rtruntime.Options{Granularity: granularity, AgentTimeout: 10 * time.Second},
	})
}

func (o *office) write(do func() error) error {
	o.writes++
	if o.writes == o.dieAt && o.dieBefore {
		return errDied
	}
	if err := do(); err != nil || o.writes != o.dieAt {
		return err
	}
	return errDied
}

// serve has the loop look at the McKube.
func (o *office) serve(name string) (time.Duration, error) {
	o.Helper()
	o.look()
	result, err := o.mckubes.Reconcile(o.Context(), reconcile.Request{NamespacedName: o.key(name)})
	return result.RequeueAfter, err
}

// settle has all loops look and act until the one over McKubes has nothing to write, twice; controllers that
// die are replaced.
func (o *office) settle(nodes []string, mckubes ...string) {
	o.Helper()
	for quiet, rounds := 0, 0; quiet < 2 && rounds < 10; rounds++ {
		quiet++
		writes := o.writes
		for _, name := range mckubes {
			if _, err := o.serve(name); errors.Is(err, errDied) {
				o.hire()
			} else {
				o.must(err)
			}
		}
		for _, node := range nodes {
			o.lookAndAct(node)
		}
		if o.writes > writes {
			quiet = 0
		}
	}
}

func (o *office) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: o.prefix + name}
}

// mckube governs the pod of a name.
func (o *office) mckube(name, pod string, lowMs, highMs int64) *mcv1.McKube {
	o.Helper()
	m := statetest.McKube("default", o.prefix+name, o.prefix+pod, "High", lowMs, highMs)
	m.UID = ""
	o.must(o.Create(o.Context(), m))
	return m
}

// bare has a pod run that came before its McKubes.
func (o *office) bare(name, node string, containers ...string) *corev1.Pod {
	o.Helper()
	p := statetest.On(statetest.Pod("default", o.prefix+name, "", containers...), node)
	for i := range p.Spec.Containers {
		p.Spec.Containers[i].Image = "none"
	}
	status := p.Status
	o.must(o.Create(o.Context(), p))
	p.Status = status
	o.must(o.Status().Update(o.Context(), p))
	return p
}

func (o *office) get(name string) *mcv1.McKube {
	o.Helper()
	m := &mcv1.McKube{}
	o.must(o.Get(o.Context(), o.key(name), m))
	return m
}

func (o *office) change(name string, f func(*mcv1.McKube)) {
	o.Helper()
	m := o.get(name)
	f(m)
	o.must(o.Update(o.Context(), m))
}

// is expects a condition of the McKube.
func (o *office) is(name, condition string, status metav1.ConditionStatus, reason string) {
	o.Helper()
	c := meta.FindStatusCondition(o.get(name).Status.Conditions, condition)
	if c == nil || c.Status != status || c.Reason != reason {
		o.Errorf("%s of %s is %+v, want %s %s", condition, name, c, status, reason)
	}
}

func (o *office) held(pod *corev1.Pod) []resourcev1.ResourceClaim {
	o.Helper()
	list := &resourcev1.ResourceClaimList{}
	o.must(o.List(o.Context(), list, client.InNamespace("default")))
	return slices.DeleteFunc(list.Items, func(c resourcev1.ResourceClaim) bool { return !metav1.IsControlledBy(&c, pod) })
}

// collect plays the garbage collector and Kubernetes' controller for claims.
func (o *office) collect(pod *corev1.Pod) {
	o.Helper()
	for _, claim := range o.held(pod) {
		if !slices.Contains(claim.Finalizers, resourcev1.Finalizer) {
			o.Errorf("claim %s may go before the scheduler is told", claim.Name)
		}
		claim.Finalizers = nil
		o.must(o.Update(o.Context(), &claim))
		o.must(o.Delete(o.Context(), &claim))
	}
}

// cores are "name=ppm@core" of the claims held for a pod; without a core "name".
func (o *office) cores(pod *corev1.Pod) string {
	o.Helper()
	var out []string
	for _, c := range o.held(pod) {
		word := strings.TrimPrefix(c.Name, pod.Name+"-")
		if a := c.Status.Allocation; a != nil {
			share := a.Devices.Results[0].ConsumedCapacity["rtBandwidth"]
			word += fmt.Sprintf("=%d@%s", share.Value(), a.Devices.Results[0].Device)
		}
		out = append(out, word)
	}
	return strings.Join(out, " ")
}

func (o *office) annotation(pod *corev1.Pod, key string) string {
	o.Helper()
	now := &corev1.Pod{}
	o.must(o.Get(o.Context(), client.ObjectKeyFromObject(pod), now))
	return now.Annotations[key]
}

func (o *office) templates(m *mcv1.McKube) []string {
	o.Helper()
	list := &resourcev1.ResourceClaimTemplateList{}
	o.must(o.List(o.Context(), list, client.InNamespace("default")))
	var out []string
	for _, t := range list.Items {
		if metav1.IsControlledBy(&t, m) {
			out = append(out, t.Name)
		}
	}
	return out
}

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
	writes := o.writes
	o.settle(nil, "m")
	if o.writes != writes {
		t.Errorf("%d writes though nothing changed", o.writes-writes)
	}
	// A template that somebody deletes is made again.
	o.must(o.DeleteAllOf(t.Context(), &resourcev1.ResourceClaimTemplate{}, client.InNamespace("default")))
	o.settle(nil, "m")
	if got := o.templates(m); len(got) != 1 {
		t.Errorf("templates after one was deleted: %v", got)
	}
}

// Whatever write the controller dies before or after, the next one gives the container one claim with one core,
// tells the pod, and fills in the node.
func TestARunningPodIsAdoptedWhateverHappens(t *testing.T) {
	for at := 0; at <= 7; at++ {
		for _, before := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d-%t", at, before), func(t *testing.T) {
				o := newCluster(t).office()
				o.prefix += fmt.Sprintf("%d-%t-", at, before)
				n := o.node("n", 2)
				p := o.bare("p", n.Name, "app")
				o.dieAt, o.dieBefore = at, before
				o.mckube("m", "p", 20, 40)
				o.settle([]string{n.Name}, "m")
				if got, want := o.cores(p), "app-rt=401000@core-0"; got != want {
					t.Errorf("claims %s, want %s", got, want)
				}
				if got := o.annotation(p, mcv1.AnnotationCore) + o.annotation(p, mcv1.AnnotationPending); got != "0false" {
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
	o.writes, o.dieAt, o.dieBefore = 0, 3, true // template, claim, its core
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

func TestATemplateOfSomebodyElseIsNotUsed(t *testing.T) {
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

func TestAClaimOfSomebodyElseIsNotTaken(t *testing.T) {
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
// last, whatever write the controller dies at; the pod runs on without a trace of it.
func TestADeletedMcKubeLetsItsContainerGo(t *testing.T) {
	for at := 0; at <= 6; at++ {
		for _, before := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d-%t", at, before), func(t *testing.T) {
				o := newCluster(t).office()
				o.prefix += fmt.Sprintf("%d-%t-", at, before)
				n := o.node("n", 1)
				p := o.bare("p", n.Name, "app")
				m := o.mckube("m", "p", 20, 20)
				o.settle([]string{n.Name}, "m")
				o.writes, o.dieAt, o.dieBefore = 0, at, before
				o.must(o.Delete(t.Context(), m))
				wait, err := o.serve("m")
				o.must(err)
				if wait <= 0 || o.writes != 0 || o.cores(p) == "" {
					t.Errorf("before the node was told: looks again after %s, %d writes, claims %q", wait, o.writes, o.cores(p))
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
