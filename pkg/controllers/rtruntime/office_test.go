package rtruntime_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
	"github.com/mainspring-rt/mainspring/pkg/test/mortal"
)

// office is a loop over McKubes beside one over nodes, on one cache. The loop over McKubes may be made to die
// before one of its writes.
type office struct {
	*loop
	mortal.Life
	process *mortal.Process
	mckubes reconcile.Reconciler
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
	o.process = o.Process(apiserver.Near(o, o.Scheme()))
	fresh := o.cluster.loop()
	fresh.clock, fresh.told = o.clock, o.told
	o.loop = fresh
	o.mckubes = rtruntime.NewMcKubes(rtruntime.Dependencies{
		Clock: o.clock, Client: o.process, Recorder: o.told, Store: o.store, FreedCapacity: func() {},
		InFlight: func(context.Context, *corev1.Pod) bool { return false },
		Options:  rtruntime.Options{Granularity: granularity, AgentTimeout: 10 * time.Second},
	})
}

// serve has the loop look at the McKube.
func (o *office) serve(name string) (time.Duration, error) {
	o.Helper()
	o.look()
	result, err := o.mckubes.Reconcile(o.Context(), reconcile.Request{NamespacedName: o.key(name)})
	return result.RequeueAfter, err
}

// settle has all loops look and act until the one over McKubes has nothing to write, twice, however soon after it wrote last; controllers
// that die are replaced.
func (o *office) settle(nodes []string, mckubes ...string) {
	o.Helper()
	for quiet, rounds := 0, 0; quiet < 2 && rounds < 10; rounds++ {
		quiet++
		writes := o.Writes
		for _, name := range mckubes {
			rtruntime.Rested(o.mckubes)
			if _, err := o.serve(name); !o.process.Dead() {
				o.must(err)
			} else {
				o.hire()
			}
		}
		for _, node := range nodes {
			o.lookAndAct(node)
		}
		if o.Writes > writes {
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
