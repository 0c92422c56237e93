package rtruntime_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/informer"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
)

// patience is how long the API server, its watches and the loops may take.
const patience = 30 * time.Second

// controller runs a node loop in a manager of its own, as a process does, until the test ends.
func (c *cluster) controller() {
	c.Helper()
	c.controllerBy(clock.RealClock{}, time.Minute)
}

// controllerBy runs one that goes by a clock, and by which an agent may be silent for that long.
func (c *cluster) controllerBy(clk clock.WithTicker, silence time.Duration) {
	c.Helper()
	noNames := true
	mgr, err := ctrl.NewManager(apiserver.Config(c), ctrl.Options{
		Scheme: c.Scheme(), Metrics: server.Options{BindAddress: "0"}, Logger: logr.Discard(), Controller: ctrlconfig.Controller{SkipNameValidation: &noNames},
	})
	c.must(err)
	store := state.New(state.Options{})
	c.must(informer.New(store).Register(c.Context(), mgr))
	rearrange := rtruntime.NewRearrange(rtruntime.RearrangeDependencies{Running: func() []*v1alpha1.RTAction { return nil }})
	c.must(rtruntime.NewNodes(rtruntime.Dependencies{
		Clock: clk, Client: mgr.GetClient(), Recorder: &told{}, Store: store, FreedCapacity: func() {}, Rearrange: rearrange,
		InFlight: func(context.Context, *corev1.Pod) bool { return false },
		Options:  rtruntime.Options{Granularity: granularity, AgentTimeout: silence},
	}).Register(c.Context(), mgr))
	ctx, cancel := context.WithCancel(c.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	c.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			c.Errorf("the manager ended with %v", err)
		}
	})
}

// versions watches the RTNode of a node; the returned function waits until one version has exactly the pods, and
// fails the test when any on the way exceeds a core.
func (c *cluster) versions(node string, cores []rt.Core) (until func(pods ...string)) {
	c.Helper()
	w, err := apiserver.Client(c, c.Scheme()).Watch(c.Context(), &v1alpha1.RTNodeList{}, &client.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", node)})
	c.must(err)
	c.Cleanup(w.Stop)
	var last []string
	return func(pods ...string) {
		c.Helper()
		ctx, cancel := context.WithTimeout(c.Context(), patience)
		defer cancel()
		slices.Sort(pods)
		for !slices.Equal(last, pods) {
			select {
			case <-ctx.Done():
				c.Fatalf("the spec has %v, want %v", last, pods)
			case e := <-w.ResultChan():
				if r, ok := e.Object.(*v1alpha1.RTNode); ok && e.Type != watch.Deleted {
					last = c.holds(r, cores)
				}
			}
		}
	}
}

// holds expects every core of a version to pass the admission test, and returns the pods in it.
func (c *cluster) holds(r *v1alpha1.RTNode, cores []rt.Core) []string {
	c.Helper()
	var pods []string
	on := map[int][]rt.Server{}
	for _, e := range r.Spec.Servers {
		pods = append(pods, strings.TrimPrefix(e.Pod, c.prefix))
		on[int(e.Cores[0])] = append(on[int(e.Cores[0])], rtruntime.ServerOf(e))
	}
	for _, core := range cores {
		if v := rt.Holds(core, on[core.ID]); !v.Admitted {
			c.Errorf("version %s exceeds core %d: %v in %s", r.ResourceVersion, core.ID, v, spec(r.Spec))
		}
	}
	slices.Sort(pods)
	return pods
}

// Two controllers, as while leadership changes hands: pods come, go and push others from the cores that they
// prefer; no version of the spec exceeds a core, and in the end every container is there once.
func TestTwoControllersNeverAdmitTwice(t *testing.T) {
	c := newCluster(t)
	n := c.node("n", 3)
	until := c.versions(n.Name, statetest.Cores(3))
	c.controller()
	c.controller()
	pods := map[string]*corev1.Pod{}
	for i, spec := range []struct {
		criticality mcv1.Criticality
		budget      int64
		core        int
		prefers     string
	}{
		{"Low", 35, 2, ""}, {"Middle", 40, 2, ""}, {"Low", 60, 0, ""}, {"High", 25, 1, "2"}, {"High", 20, 0, "1"},
		{"Middle", 30, 1, "0"}, {"High", 30, 1, "2"},
	} {
		name := fmt.Sprintf("p%d", i)
		if spec.prefers == "" {
			pods[name] = c.run(name, n.Name, spec.criticality, spec.budget, spec.budget, spec.core)
			continue
		}
		pods[name] = c.runPreferring(name, n.Name, spec.criticality, spec.budget, spec.core, spec.prefers)
	}
	until("p0", "p1", "p2", "p3", "p4", "p5", "p6")
	for _, name := range []string{"p2", "p4"} {
		c.must(c.Delete(t.Context(), pods[name], client.GracePeriodSeconds(0)))
		c.must(c.Delete(t.Context(), statetest.Claim(pods[name], pods[name].Name+"-claim", "app", n.Name, 0, 0)))
	}
	until("p0", "p1", "p3", "p5", "p6")
	c.run("p7", n.Name, "High", 40, 40, 0)
	until("p0", "p1", "p3", "p5", "p6", "p7")
}

// Of two controllers that decided on the same version, one writes; the other is refused and sees why.
func TestOfTwoDecisionsOnOneVersionOneIsWritten(t *testing.T) {
	c := newCluster(t)
	n := c.node("n", 1)
	first, second := c.loop(), c.loop()
	first.lookAndAct(n.Name)
	a := c.run("a", n.Name, "High", 60, 60, 0)
	first.look()
	// The other has not seen a's claim, but one for b on the same core, as when a was freed in between.
	b := c.run("b", n.Name, "High", 25, 25, 0)
	second.look()
	claim := statetest.Claim(a, a.Name+"-claim", "app", n.Name, 0, 0)
	c.must(c.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
	c.must(second.store.Delete(claim))
	first.act(n.Name)
	if wait := second.act(n.Name); wait <= 0 || wait > time.Second {
		t.Errorf("the second looks again after %s", wait)
	}
	if got, want := spec(c.rtNode(n.Name).Spec), a.Name+"@0 low 60/60"; got != want {
		t.Errorf("the spec is %s, want %s", got, want)
	}
	_, err := second.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: n.Name}})
	c.must(err)
	second.lookAndAct(n.Name)
	if got := c.holds(c.rtNode(n.Name), statetest.Cores(1)); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%s and %s are there: %v", a.Name, b.Name, got)
	}
}
