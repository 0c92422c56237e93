package rtruntime_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
)

// moving is how long the action of a yard may run.
const moving = 20 * time.Second

// yard is a node on which an action moves container b from core 0 to core 1, by a controller that may die at one of its
// writes. The test plays the agent.
type yard struct {
	*cluster
	node  string
	pods  map[string]*corev1.Pod
	clock *clocktesting.FakeClock
	// idle: the agent applies nothing, but is heard of; silent: it is not heard of either.
	idle, silent  bool
	writes, dieAt int
	dieBefore     bool
}

func newYard(t testing.TB) *yard {
	t.Helper()
	y := &yard{cluster: newCluster(t), clock: clocktesting.NewFakeClock(start), pods: map[string]*corev1.Pod{}}
	y.node = y.cluster.node("n", 2).Name
	y.pods["a"] = y.run("a", y.node, "High", 50, 50, 0)
	y.pods["b"] = y.run("b", y.node, "High", 30, 30, 0)
	y.pods["c"] = y.run("c", y.node, "Low", 20, 20, 1)
	t.Cleanup(y.leave)
	p := y.start()
	for range 3 {
		y.must(p.turn())
	}
	return y
}

// leave takes away what other tests would see.
func (y *yard) leave() {
	ctx := context.Background()
	for _, o := range y.actions(ctx) {
		o.Finalizers = nil
		y.must(client.IgnoreNotFound(y.Update(ctx, &o)))
		y.must(client.IgnoreNotFound(y.Delete(ctx, &o)))
	}
	y.must(y.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: y.node}}))
	y.must(y.Delete(ctx, &v1alpha1.RTNode{ObjectMeta: metav1.ObjectMeta{Name: y.node}}))
	y.must(y.DeleteAllOf(ctx, &resourcev1.ResourceSlice{}, client.MatchingFields{resourcev1.ResourceSliceSelectorNodeName: y.node}))
	for _, pod := range y.pods {
		named := metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}
		y.must(client.IgnoreNotFound(y.Delete(ctx, &corev1.Pod{ObjectMeta: named}, client.GracePeriodSeconds(0))))
		y.must(y.Delete(ctx, &mcv1.McKube{ObjectMeta: named}))
		named.Name += "-claim"
		y.must(client.IgnoreNotFound(y.Delete(ctx, &resourcev1.ResourceClaim{ObjectMeta: named})))
	}
}

func (y *yard) actions(ctx context.Context) []v1alpha1.RTAction {
	y.Helper()
	list := &v1alpha1.RTActionList{}
	y.must(y.List(ctx, list))
	var out []v1alpha1.RTAction
	for _, o := range list.Items {
		if o.Spec.Node == y.node {
			out = append(out, o)
		}
	}
	return out
}

// write does what the controller writes, unless it dies.
func (y *yard) write(do func() error) error {
	y.writes++
	if y.writes == y.dieAt && y.dieBefore {
		return errDied
	}
	err := do()
	if y.writes == y.dieAt {
		return errDied
	}
	return err
}

// mover is a controller: a node loop and an orchestration queue.
type mover struct {
	*loop
	yard  *yard
	queue *orchestration.Queue
}

// start starts a controller that knows nothing of its predecessors.
func (y *yard) start() *mover {
	y.Helper()
	api := apiserver.Client(y, y.Scheme())
	mortal := *y.cluster
	mortal.Client = interceptor.NewClient(api, interceptor.Funcs{
		Create: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return y.write(func() error { return api.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return y.write(func() error { return api.Update(ctx, o, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, api client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return y.write(func() error { return api.SubResource(sub).Update(ctx, o, opts...) })
		},
	})
	m := &mover{loop: mortal.loopAt(y.clock), yard: y}
	var err error
	m.queue, err = orchestration.New(orchestration.Dependencies{
		Clock: y.clock, Client: mortal.Client, Reader: y.Client, Recorder: silent{}, Nodes: calm{},
		Lease: types.NamespacedName{Namespace: "default", Name: y.prefix + "queue"}, Identity: string(uuid.NewUUID()),
	})
	y.must(err)
	m.running = func() []*v1alpha1.RTAction { return m.queue.Running(rules.Rearrange) }
	m.queue.Handle(rules.Rearrange, m.rearrange)
	return m
}

// turn lets everybody go on for a second: the queue, the action's executor, the node loop and the agent.
func (m *mover) turn() error {
	m.Helper()
	m.look()
	loops := m.queue.Loops()
	if _, err := loops[0].Reconcile(m.Context(), reconcile.Request{}); err != nil {
		return err
	}
	for _, o := range m.yard.actions(m.Context()) {
		if _, err := loops[1].Reconcile(m.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: o.Name}}); err != nil {
			return err
		}
	}
	if _, err := m.Reconcile(m.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: m.yard.node}}); err != nil {
		return err
	}
	m.yard.agent()
	m.yard.clock.Step(time.Second)
	return nil
}

// agent applies what the RTNode says, and is heard of.
func (y *yard) agent() {
	y.Helper()
	r := &v1alpha1.RTNode{}
	err := y.Get(y.Context(), client.ObjectKey{Name: y.node}, r)
	if y.silent || client.IgnoreNotFound(err) == nil && err != nil {
		return
	}
	y.must(err)
	status := heartbeat(y.clock.Now())
	status.Servers = r.Status.Servers
	if !y.idle {
		status.Servers = nil
		for _, s := range r.Spec.Servers {
			status.Servers = append(status.Servers, v1alpha1.RTServerStatus{
				PodUID: s.PodUID, Container: s.Container, Cores: s.Cores, Level: "low", BudgetUs: s.BudgetLowUs, PeriodUs: s.PeriodUs,
			})
		}
	}
	y.agentReports(y.node, status)
}

// request asks for a container to go to a core.
func (y *yard) request(pod string, core int32) orchestration.Request {
	r := orchestration.Request{
		Kind: rules.Rearrange, Reason: "RTPressure", Cause: "pressure/" + y.node, Node: y.node, Timeout: moving,
		Beneficiary: v1alpha1.ActionBeneficiary{Kind: "Node", Name: y.node, Criticality: "High"},
	}
	if core >= 0 {
		r.Moves = []v1alpha1.ActionMove{{PodUID: y.pods[pod].UID, Container: "app", Core: core}}
	}
	return r
}

// submit asks until it is stored, whoever dies over it.
func (y *yard) submit(m *mover, r orchestration.Request) (*mover, orchestration.Ticket) {
	y.Helper()
	for range 5 {
		ticket, err := m.queue.Submit(y.Context(), r)
		switch {
		case err == nil:
			return m, ticket
		case errors.Is(err, errDied):
			m = y.start()
		case !errors.Is(err, orchestration.ErrNotReady):
			y.Fatal(err)
		}
		if err := m.turn(); errors.Is(err, errDied) {
			m = y.start()
		}
	}
	y.Fatal("it cannot be submitted")
	return nil, orchestration.Ticket{}
}

// play goes on until the action is over: the controller lives until its death, and then another one goes on. What
// else happens, happens before the turn of a number.
func (y *yard) play(r orchestration.Request, meanwhile func(turn int, m *mover, name string)) v1alpha1.RTAction {
	y.Helper()
	m, ticket := y.submit(y.start(), r)
	for turn := range 120 {
		if meanwhile != nil {
			meanwhile(turn, m, ticket.Name)
		}
		switch err := m.turn(); {
		case errors.Is(err, errDied):
			m = y.start()
		default:
			y.must(err)
		}
		if o := y.actions(y.Context())[0]; rules.Phase(o.Status.Phase).Over() {
			for range 3 { // nothing more comes of it
				y.must(m.turn())
			}
			return o
		}
	}
	y.Fatalf("it does not end: %+v, %s", y.actions(y.Context())[0].Status, y.where())
	return v1alpha1.RTAction{}
}

// where every container is, as the RTNode says.
func (y *yard) where() string {
	y.Helper()
	return strings.ReplaceAll(spec(y.rtNode(y.node).Spec), y.prefix, "")
}

// core of a container in RTNode.spec; -1 for none.
func (y *yard) core(pod string) int {
	y.Helper()
	for _, s := range y.rtNode(y.node).Spec.Servers {
		if s.PodUID == y.pods[pod].UID {
			return int(s.Cores[0])
		}
	}
	return -1
}
