package agent

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/discover"
	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// toldFastPath remembers what it was told.
type toldFastPath struct{ tables []table.Table }

func (f *toldFastPath) Apply(_ context.Context, t table.Table) error {
	f.tables = append(f.tables, t)
	return nil
}
func (f *toldFastPath) Report(context.Context) (table.Report, error) { return table.Report{}, nil }
func (f *toldFastPath) Set(context.Context, client.SetRequest) error { return nil }

// everyGroup is there.
type everyGroup struct{}

func (everyGroup) ContainerGroup(_, id string) (string, error) {
	return "/kubepods/" + strings.TrimPrefix(id, "containerd://"), nil
}

// starting is the feeder of an agent that has just started, with the fast path's report, and what the API server shows.
func starting(report table.ServerReport, containers map[discover.Key]discover.Container) (*feeder, *toldFastPath, *clocktesting.FakeClock) {
	node := &v1alpha1.RTNode{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "r", Generation: 5}}
	node.Spec.Servers = []v1alpha1.RTServer{{
		PodUID: "u1", Namespace: "d", Pod: "p", Container: "app", Criticality: "High", PeriodUs: 10_000, DeadlineUs: 10_000,
		BudgetLowUs: 2_000, BudgetHighUs: 4_000, Cores: []int32{1},
	}}
	counted := &Counted{Report: table.Report{Instance: "one", Generation: 5, Origin: "r", Servers: []table.ServerReport{report}}}
	world := &World{RTNode: node, Containers: containers}
	told, fake := &toldFastPath{}, clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	return &feeder{
		fast: told, finder: discover.NewFinder(everyGroup{}, func() {}), world: func() *World { return world }, counted: func() *Counted { return counted },
		changed: newSignal(), clock: fake, log: logr.Discard(),
	}, told, fake
}

var app = discover.Key{Pod: "u1", Container: "app"}

// An agent that starts may hear old Pods. It takes nothing from a container that the fast path governs, until a minute is over.
func TestAnAgentThatStartsWaitsForThePodsOfWhomTheFastPathGoverns(t *testing.T) {
	t.Parallel()
	governed := table.ServerReport{ID: "u1/app", BudgetUs: 4_000, LevelUs: 4_000}
	runs := discover.Container{Namespace: "d", Pod: "p", GroupUID: "u1", ID: "containerd://c1"}
	for name, test := range map[string]struct {
		report     table.ServerReport
		containers map[discover.Key]discover.Container
		waits      bool
	}{
		"its Pod is not in the list":          {governed, map[discover.Key]discover.Container{}, true},
		"it does not run by the list":         {governed, map[discover.Key]discover.Container{app: {Namespace: "d", Pod: "p", GroupUID: "u1"}}, true},
		"it runs":                             {governed, map[discover.Key]discover.Container{app: runs}, false},
		"it has ended, by the report as well": {table.ServerReport{ID: "u1/app", Error: "gone"}, map[discover.Key]discover.Container{}, false},
		"it has what it had, on a core that is gone": {
			table.ServerReport{ID: "u1/app", HeldUs: 4_000, Error: "core 3 takes no real-time work; want one of [1 2]"}, map[discover.Key]discover.Container{}, true,
		},
		"another one is governed": {table.ServerReport{ID: "u2/app", BudgetUs: 4_000}, map[discover.Key]discover.Container{}, false},
	} {
		f, told, clock := starting(test.report, test.containers)
		f.feed(t.Context())
		if waits := len(told.tables) == 0; waits != test.waits {
			t.Errorf("%s: it waits %v, want %v", name, waits, test.waits)
		}
		clock.Step(unheardFor - time.Second)
		f.feed(t.Context())
		if waits := len(told.tables) == 0; waits != test.waits {
			t.Errorf("%s, for nearly a minute: it waits %v, want %v", name, waits, test.waits)
		}
		clock.Step(time.Second)
		f.feed(t.Context())
		if len(told.tables) != 1 {
			t.Errorf("%s: after a minute %d tables were told; want one", name, len(told.tables))
		}
	}
}

// Once the Pods are heard nothing is waited for, and who ends then is let go of at once.
func TestWaitingForPodsEndsWhenTheyAreHeard(t *testing.T) {
	t.Parallel()
	containers := map[discover.Key]discover.Container{}
	f, told, clock := starting(table.ServerReport{ID: "u1/app", BudgetUs: 4_000}, containers)
	f.feed(t.Context())
	containers[app] = discover.Container{Namespace: "d", Pod: "p", GroupUID: "u1", ID: "containerd://c1"}
	clock.Step(time.Second)
	f.feed(t.Context())
	if len(told.tables) != 1 || len(told.tables[0].Servers) != 1 || told.tables[0].Servers[0].Cgroup == "" {
		t.Fatalf("%+v; want the server with its group", told.tables)
	}
	delete(containers, app)
	f.feed(t.Context())
	if len(told.tables) != 2 || len(told.tables[1].Servers) > 0 && told.tables[1].Servers[0].Cgroup != "" {
		t.Errorf("%+v; want it let go of", told.tables)
	}
}
