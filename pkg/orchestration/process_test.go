package orchestration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/test/mortal"
)

// fate is what befalls a process at one of its points: its writes to the API server, and the effects of its executor.
type fate string

const (
	none fate = ""
	// dies before the point.
	dies fate = "dies"
	// losesRequest: the point does not take place, which the process is told as an error that could mean anything;
	// losesReply: it does; isLate: it does, but only after the next point.
	losesRequest fate = "loses the request"
	losesReply   fate = "loses the reply"
	isLate       fate = "is late"
	// sleepsBefore it, while another process takes over and does what it can.
	sleepsBefore fate = "sleeps before"
)

// process is a controller with the queue, on its own connection to the API server.
type process struct {
	*stage
	queue *orchestration.Queue

	points int
	at     int
	fate   fate
	dead   bool
	late   func()
	// hasty: its runner looks before its dispatcher.
	hasty bool
	// meanwhile is what happens at the point, unless the process dies.
	meanwhile func()
}

// spawn starts a process that knows nothing, with an executor for every kind.
func (s *stage) spawn() *process {
	s.Helper()
	s.processes++
	p := &process{stage: s}
	guarded := interceptor.NewClient(mortal.Guarded(s.api, p.alive, p.point), interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, _ client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			// What is sent late is what was to be sent, whatever becomes of the object meanwhile.
			sent := o.DeepCopyObject().(client.Object)
			return p.lateOr(func() error { return s.api.SubResource(sub).Update(context.WithoutCancel(ctx), sent, opts...) },
				func() error { return s.api.SubResource(sub).Update(ctx, o, opts...) })
		},
	})
	var err error
	p.queue, err = orchestration.New(orchestration.Dependencies{
		Clock: s.clock, Client: guarded, Reader: guarded, Recorder: s.told, Nodes: s.nodes, Lease: client.ObjectKey{Namespace: "default", Name: "queue"},
		Identity: fmt.Sprintf("process-%d", s.processes), Options: s.options,
	})
	s.must(err)
	for _, kind := range rules.Kinds {
		if !s.unable[kind] {
			p.queue.Handle(kind, &mover{p})
		}
	}
	return p
}

// alive does something unless the process is dead.
func (p *process) alive(do func() error) error {
	if p.dead {
		return mortal.ErrDied
	}
	return do()
}

func (p *process) point(do func() error) error { return p.lateOr(do, do) }

// lateOr passes a point of the process.
func (p *process) lateOr(late, do func() error) error {
	if p.dead {
		return mortal.ErrDied
	}
	p.points++
	arrive := p.late
	p.late = nil
	if arrive != nil {
		defer arrive()
	}
	if p.points != p.at {
		return do()
	}
	if p.meanwhile != nil && p.fate != dies {
		p.meanwhile()
	}
	doubt := apierrors.NewTimeoutError("who knows", 1)
	switch p.fate {
	case dies:
		p.dead = true
		return mortal.ErrDied
	case losesRequest:
		return doubt
	case losesReply:
		_ = late() // it is not heard
		return doubt
	case isLate:
		p.late = func() { _ = late() }
		return doubt
	}
	return do()
}

// turn has both loops look at everything once. A process that dies says so.
func (p *process) turn() error {
	loops := []func() error{p.decide, p.run}
	if p.hasty {
		slices.Reverse(loops)
	}
	for _, loop := range loops {
		if err := loop(); err != nil || p.dead {
			return p.verdict(err)
		}
	}
	return nil
}

func (p *process) decide() error {
	_, err := p.queue.Loops()[0].Reconcile(p.Context(), reconcile.Request{})
	if err != nil && p.fate == none && !errors.Is(err, orchestration.ErrDeposed) {
		p.Fatalf("dispatching: %v", err)
	}
	return err
}

func (p *process) run() error {
	names := orchestration.Names(p.queue)
	for _, o := range p.actions() { // what the watch shows
		names = append(names, o.Name)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		_, err := p.queue.Loops()[1].Reconcile(p.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
		if p.dead {
			return mortal.ErrDied
		}
		if err != nil && p.fate == none && !p.faulty {
			p.Fatalf("running %s: %v", name, err)
		}
	}
	return nil
}

func (p *process) verdict(err error) error {
	if p.dead {
		return mortal.ErrDied
	}
	p.Logf("bears %v", err)
	return nil
}
