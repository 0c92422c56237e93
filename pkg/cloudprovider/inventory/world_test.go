package inventory_test

import (
	"context"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/test"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/nodeclass"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/inventory"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/inventory/power"
	"github.com/mainspring-rt/mainspring/pkg/test/mortal"
)

const rack = "example.com/rack"

func TestMain(m *testing.M) {
	for _, add := range []error{v1alpha1.AddToScheme(scheme.Scheme), nodeclass.AddToScheme(scheme.Scheme)} {
		if add != nil {
			panic(add)
		}
	}
	cloudprovider.RegisterLabels()
	karpv1.WellKnownLabels = karpv1.WellKnownLabels.Insert(rack)
	os.Exit(m.Run())
}

// world is an API server in memory, a clock, the machines' power and the inventory. restart throws away everything
// that a process would lose.
type world struct {
	t        *testing.T
	client   client.WithWatch // of users and tests
	clock    *clocktesting.FakeClock
	recorder *test.EventRecorder
	boards   map[string]*board
	// dialer, where it is set, makes drivers in place of the boards.
	dialer   inventory.Dialer
	provider *inventory.Provider
	// writes until the process dies; negative: it does not.
	writes int
	died   bool
	// meanwhile, where it is set, happens once, between what the process has read and what it then writes.
	meanwhile func()
}

// board is a machine's power.
type board struct {
	state power.State
	calls []string
	err   error // of every call
	// dead boards accept On and stay off; ignoring ones accept Off and stay on.
	dead, ignoring bool
	world          *world
	// after is run after each call that changes something.
	after func(call string)
}

func (b *board) State(context.Context) (power.State, error) { return b.state, b.err }

func (b *board) On(context.Context) error {
	return b.act("on", func() {
		if !b.dead {
			b.state = v1alpha1.PowerOn
		}
	})
}

func (b *board) Off(_ context.Context, force bool) error {
	call := "off"
	if force {
		call = "cut"
	}
	return b.act(call, func() {
		if !b.ignoring || force {
			b.state = v1alpha1.PowerOff
		}
	})
}

func (b *board) Restart(context.Context) error {
	return b.act("restart", func() { b.state = v1alpha1.PowerOn })
}

func (b *board) act(call string, change func()) error {
	if b.world.died {
		return mortal.ErrDied
	}
	b.calls = append(b.calls, call)
	if b.err != nil {
		return b.err
	}
	change()
	if b.after != nil {
		b.after(call)
	}
	return nil
}

// Dial makes the world the dialer.
func (w *world) Dial(ctx context.Context, machine string, spec inventory.PowerSpec) (power.Driver, error) {
	if w.dialer != nil {
		return w.dialer.Dial(ctx, machine, spec)
	}
	return w.board(machine), nil
}

func (w *world) board(machine string) *board {
	if w.boards[machine] == nil {
		w.boards[machine] = &board{state: v1alpha1.PowerOff, world: w}
	}
	return w.boards[machine]
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	start := time.Date(2026, 11, 21, 6, 0, 0, 0, time.UTC)
	w := &world{t: t, clock: clocktesting.NewFakeClock(start), boards: map[string]*board{}, writes: -1}
	objects = append(objects, &nodeclass.InventoryNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	for i, o := range objects {
		o.SetUID(types.UID("uid-" + o.GetName()))
		o.SetGeneration(1)
		o.SetCreationTimestamp(metav1.NewTime(start.Add(time.Duration(i) * time.Second)))
	}
	w.client = fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).
		WithStatusSubresource(&inventory.Machine{}, &karpv1.NodeClaim{}, &nodeclass.InventoryNodeClass{}, &corev1.Node{}).Build()
	w.restart()
	return w
}

// restart starts the process anew.
func (w *world) restart() {
	w.writes, w.died = -1, false
	w.recorder = test.NewEventRecorder()
	w.provider = inventory.New(inventory.Options{
		Client: mortal.Guarded(w.client, mortal.Always, w.write), Reader: w.client, Clock: w.clock, Recorder: w.recorder, Dialer: w,
		Labels: []string{rack}, PowerTimeout: time.Second, Quarantine: time.Minute, RepairToleration: time.Minute,
	})
}

func (w *world) write(do func() error) error {
	if meanwhile := w.meanwhile; meanwhile != nil {
		w.meanwhile = nil
		meanwhile()
	}
	if w.writes == 0 {
		w.died = true
	}
	if w.died {
		return mortal.ErrDied
	}
	w.writes--
	return do()
}

// reconcile takes the machine's next step.
func (w *world) reconcile(name string) error {
	controller := w.provider.Controllers()[0].(reconcile.Reconciler)
	_, err := controller.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	return err
}

// settle takes steps until nothing changes any more, the clock standing still.
func (w *world) settle(names ...string) {
	w.t.Helper()
	still := 0
	for range 20 {
		before := w.versions(names)
		for _, name := range names {
			if err := w.reconcile(name); err != nil {
				w.t.Fatal(err)
			}
		}
		if still++; before != w.versions(names) {
			still = 0
		}
		if still == 3 { // a step may change a Node or a NodeClaim alone
			return
		}
	}
	w.t.Fatal("the machines do not come to rest")
}

func (w *world) versions(names []string) string {
	all := ""
	for _, name := range names {
		m := &inventory.Machine{}
		if err := w.client.Get(w.t.Context(), client.ObjectKey{Name: name}, m); err == nil {
			all += m.ResourceVersion + " "
		}
	}
	return all
}

// pass lets time go by in steps, so that what is due in between is done.
func (w *world) pass(d time.Duration, names ...string) {
	w.t.Helper()
	for end := w.clock.Now().Add(d); w.clock.Now().Before(end); {
		w.clock.Step(min(5*time.Second, end.Sub(w.clock.Now())))
		w.settle(names...)
	}
}

func (w *world) expectPhase(name, want string) *inventory.Machine {
	w.t.Helper()
	m := w.machine(name)
	if m.Status.Phase != want {
		w.t.Fatalf("machine %s is %s, want %s: %+v", name, m.Status.Phase, want, m.Status)
	}
	return m
}

func (w *world) gone(o client.Object) bool {
	w.t.Helper()
	err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(o), o.DeepCopyObject().(client.Object))
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	return apierrors.IsNotFound(err)
}

func (w *world) condition(name, kind string) metav1.Condition {
	w.t.Helper()
	c := meta.FindStatusCondition(w.machine(name).Status.Conditions, kind)
	if c == nil {
		w.t.Fatalf("machine %s has no condition %s", name, kind)
	}
	return *c
}

func (w *world) expectReason(name, want string) {
	w.t.Helper()
	if c := w.condition(name, v1alpha1.ConditionMachineAvailable); c.Reason != want {
		w.t.Fatalf("machine %s is %s (%s), want %s", name, c.Reason, c.Message, want)
	}
}
