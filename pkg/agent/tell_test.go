package agent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mainspring-rt/mainspring/pkg/agent"
	"github.com/mainspring-rt/mainspring/pkg/agent/pressure"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// desk takes Events, and refuses those about one pod as it is told.
type desk struct {
	agent.API // nothing else is asked for
	about     string
	err       error
	taken     []*corev1.Event
}

func (d *desk) CreateEvent(_ context.Context, e *corev1.Event) error { return d.take(e) }

func (d *desk) CountEvent(_ context.Context, e *corev1.Event) error { return d.take(e) }

func (d *desk) take(e *corev1.Event) error {
	if d.err != nil && e.InvolvedObject.Name == d.about {
		return d.err
	}
	d.taken = append(d.taken, e)
	return nil
}

// An Event that the API server will never take holds no other back; when it is away, all wait.
func TestARefusedEventHoldsNoOtherBack(t *testing.T) {
	t.Parallel()
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Event"}, "e", nil)
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"invalid":       {invalid, 2},
		"forbidden":     {apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "e", nil), 2},
		"not reachable": {errors.New("connection refused"), 0},
	} {
		clk := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
		world := &agent.World{RTNode: &v1alpha1.RTNode{}}
		raised := uint64(0)
		counted := func() *agent.Counted {
			out := &agent.Counted{Servers: map[string]agent.Total{}}
			for _, s := range world.RTNode.Spec.Servers {
				id := string(s.PodUID) + "/" + s.Container
				out.Report.Servers = append(out.Report.Servers, table.ServerReport{ID: id, LevelUs: 4000})
				out.Servers[id] = agent.Total{Counts: agent.Counts{Raises: raised}}
			}
			return out
		}
		for _, pod := range []string{"bad", "good", "better"} {
			world.RTNode.Spec.Servers = append(world.RTNode.Spec.Servers, v1alpha1.RTServer{PodUID: types.UID(pod), Namespace: "default", Pod: pod, Container: "app"})
		}
		d := &desk{about: "bad"}
		teller := agent.NewTeller(d, world, counted, clk)
		teller.Tell(t.Context()) // begins to count
		raised = 1
		teller.Tell(t.Context()) // makes all three
		if len(d.taken) != 3 {
			t.Fatalf("%s: %d Events at first", name, len(d.taken))
		}
		d.err, d.taken, raised = c.err, nil, 2
		clk.Step(2 * time.Minute)
		teller.Tell(t.Context()) // counts them up
		if len(d.taken) != c.want {
			t.Errorf("%s: %d Events were taken, want %d", name, len(d.taken), c.want)
		}
	}
}

// What has not been measured yet is not said: a busy node would seem calm whenever its agent starts.
func TestUnknownPressureIsNotTold(t *testing.T) {
	t.Parallel()
	busy := agent.WantedAnnotations(nil, pressure.State{Known: true, Percent: 97, Busy: true, Over: 7 * time.Second})
	if busy[mcv1.AnnotationCPUUsage] != "97" || busy[mcv1.AnnotationCPUBusy] != "true" || busy[mcv1.AnnotationCPUOver90] != "7" {
		t.Errorf("a busy node: %v", busy)
	}
	if unknown := agent.WantedAnnotations(nil, pressure.State{}); len(unknown) != 0 {
		t.Errorf("nothing is known: %v", unknown)
	}
	before := v1alpha1.RTPressure{CPUPercent: 97}
	v := agent.View{World: &agent.World{RTNode: &v1alpha1.RTNode{Status: v1alpha1.RTNodeStatus{Pressure: before}}}}
	if got := v.Status().Pressure; got != before {
		t.Errorf("status.pressure is %+v", got)
	}
}
