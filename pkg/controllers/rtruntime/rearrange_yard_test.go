package rtruntime_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
	"github.com/mainspring-rt/mainspring/pkg/test/mortal"
)

// moving is how long the action of a yard may run.
const moving = 20 * time.Second

// yard is a node on which an action moves container b from core 0 to core 1, by a controller that may die before one
// of its writes. The test plays the agent.
type yard struct {
	*cluster
	mortal.Life
	node  string
	pods  map[string]*corev1.Pod
	clock *clocktesting.FakeClock
	// idle: the agent applies nothing, but is heard of; silent: it is not heard of either.
	idle, silent bool
}

func newYard(t testing.TB) *yard {
	t.Helper()
	y := &yard{cluster: newCluster(t), clock: clocktesting.NewFakeClock(start), pods: map[string]*corev1.Pod{}}
	y.node = y.cluster.node("n", 2).Name
	y.pods["a"] = y.run("a", y.node, "High", 50, 50, 0)
	y.pods["b"] = y.run("b", y.node, "High", 30, 30, 0)
	y.pods["c"] = y.run("c", y.node, "Low", 20, 20, 1)
	p := y.start()
	for range 3 {
		y.must(p.turn())
	}
	return y
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

// mover is a controller: a node loop and an orchestration queue.
type mover struct {
	*loop
	process *mortal.Process
	yard    *yard
	queue   *orchestration.Queue
}

// start starts a controller that knows nothing of its predecessors.
func (y *yard) start() *mover {
	y.Helper()
	process := y.Process(apiserver.Near(y, y.Scheme()))
	connected := *y.cluster
	connected.Client = process
	m := &mover{loop: connected.loopAt(y.clock), process: process, yard: y}
	var err error
	m.queue, err = orchestration.New(orchestration.Dependencies{
		Clock: y.clock, Client: process, Reader: y.Client, Recorder: silent{}, Nodes: calm{},
		Lease: types.NamespacedName{Namespace: "default", Name: y.prefix + "queue"}, Identity: string(uuid.NewUUID()),
	})
	y.must(err)
	m.running = func() []*v1alpha1.RTAction { return m.queue.Running(rules.Rearrange) }
	m.queue.Handle(rules.Rearrange, m.rearrange)
	return m
}

// turn lets every component go on for a second: the queue, the action's executor, the node loop and the agent.
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

// submit asks until the request is stored, whichever controller dies over it.
func (y *yard) submit(m *mover, r orchestration.Request) (*mover, orchestration.Ticket) {
	y.Helper()
	for range 5 {
		ticket, err := m.queue.Submit(y.Context(), r)
		switch {
		case err == nil:
			return m, ticket
		case m.process.Dead():
			m = y.start()
		case !errors.Is(err, orchestration.ErrNotReady):
			y.Fatal(err)
		}
		if _ = m.turn(); m.process.Dead() { // it asks again
			m = y.start()
		}
	}
	y.Fatal("it cannot be submitted")
	return nil, orchestration.Ticket{}
}

// next lets every component go on for a second. A controller that dies, or has died, is followed by another.
func (y *yard) next(m *mover) *mover {
	y.Helper()
	if m.process.Dead() {
		return y.start()
	}
	err := m.turn()
	if m.process.Dead() {
		return y.start()
	}
	y.must(err)
	return m
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
		m = y.next(m)
		if o := y.actions(y.Context())[0]; rules.Phase(o.Status.Phase).Over() {
			for range 3 { // nothing more comes of it
				m = y.next(m)
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
