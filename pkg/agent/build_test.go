package agent_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/mainspring-rt/mainspring/pkg/agent"
	"github.com/mainspring-rt/mainspring/pkg/agent/discover"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/frontdoor"
)

var update = flag.Bool("update", false, "write the golden files")

// found are the containers of the golden RTNode: all run, but for those given.
func found(r *v1alpha1.RTNode, notYet ...string) map[discover.Key]discover.Found {
	out := map[discover.Key]discover.Found{}
	for _, s := range r.Spec.Servers {
		key, id := discover.Key{Pod: s.PodUID, Container: s.Container}, "containerd://"+strings.Repeat(string(s.PodUID[0]), 64)
		out[key] = discover.Found{
			Container: discover.Container{Namespace: s.Namespace, Pod: s.Pod, GroupUID: string(s.PodUID), ID: id},
			Cgroup:    "/kubepods/burstable/pod" + string(s.PodUID) + "/" + s.Container,
		}
	}
	for _, pod := range notYet {
		for key, f := range out {
			if key.Pod == types.UID(pod) {
				f.ID, f.Cgroup = "", ""
				out[key] = f
			}
		}
	}
	return out
}

func golden(t *testing.T, name string) *v1alpha1.RTNode {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	r := &v1alpha1.RTNode{}
	if err := yaml.UnmarshalStrict(data, r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTheTableOfAnRTNode(t *testing.T) {
	t.Parallel()
	r := golden(t, "rtnode.yaml")
	containers := found(r, "d")
	got, refused := agent.Build(r, containers)
	if err := got.Validate(); err != nil || len(refused) != 0 {
		t.Errorf("faults: %v, refused %v", err, refused)
	}
	data, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "table.json")
	if *update {
		if err := os.WriteFile(file, append(data, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(string(want)) != string(data) {
		t.Errorf("the table is\n%s\nrun with -update if it should be", data)
	}
}

// Whatever is wrong with a server, the others are governed, and the fast path takes the table.
func TestServersAtFaultKeepNobodyBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		spoil func(s *v1alpha1.RTServer, f *discover.Found)
		want  string
	}{
		{"no core", func(s *v1alpha1.RTServer, _ *discover.Found) { s.Cores = nil }, "cores has 0 entries; want one core"},
		{"two cores", func(s *v1alpha1.RTServer, _ *discover.Found) { s.Cores = []int32{1, 2} }, "cores has 2 entries"},
		{"a core that cannot be", func(s *v1alpha1.RTServer, _ *discover.Found) { s.Cores = []int32{5000} }, "core 5000"},
		{"more than the period", func(s *v1alpha1.RTServer, _ *discover.Found) { s.BudgetHighUs = 999_000 }, "999000"},
		{"less high than low", func(s *v1alpha1.RTServer, _ *discover.Found) { s.BudgetHighUs = 1 }, "high"},
		{"criticality", func(s *v1alpha1.RTServer, _ *discover.Found) { s.Criticality = "Urgent" }, "Urgent"},
		{"mode", func(s *v1alpha1.RTServer, _ *discover.Found) { s.Mode = "Rubber" }, "Rubber"},
		{"m of n", func(s *v1alpha1.RTServer, _ *discover.Found) { s.Overruns, s.Periods = 3, 2 }, "overruns 3 of periods 2"},
		{"no pod", func(_ *v1alpha1.RTServer, f *discover.Found) { *f = discover.Found{} }, `no container "app" on this node`},
		{"no groups", func(_ *v1alpha1.RTServer, f *discover.Found) { f.Err = errors.New("no cgroups") }, "no cgroups"},
		{"the group of another", func(_ *v1alpha1.RTServer, f *discover.Found) { f.Cgroup = "/kubepods/burstable/podb/app" }, "also that of server b/app"},
		{"a group that climbs", func(_ *v1alpha1.RTServer, f *discover.Found) { f.Cgroup = "/kubepods/../system.slice" }, "clean absolute path"},
	} {
		r := golden(t, "rtnode.yaml")
		containers := found(r)
		i := len(r.Spec.Servers) - 1 // the last, so that the rule of who came first is seen
		victim := &r.Spec.Servers[i]
		key := discover.Key{Pod: victim.PodUID, Container: victim.Container}
		f := containers[key]
		c.spoil(victim, &f)
		if f.GroupUID == "" {
			delete(containers, key)
		} else {
			containers[key] = f
		}
		got, refused := agent.Build(r, containers)
		if err := got.Validate(); err != nil {
			t.Errorf("%s: the fast path would refuse the table: %v", c.name, err)
		}
		if id := string(victim.PodUID) + "/" + victim.Container; len(refused) != 1 || !strings.Contains(refused[id], c.want) || len(got.Servers) != i {
			t.Errorf("%s: %d servers, refused %v, want %q", c.name, len(got.Servers), refused, c.want)
		}
	}
}

func TestWithoutAnRTNodeNothingRuns(t *testing.T) {
	t.Parallel()
	if got, refused := agent.Build(nil, nil); len(got.Servers) != 0 || got.Generation != 0 || len(refused) != 0 {
		t.Errorf("%+v, %v", got, refused)
	}
}

func TestOnlyAdmittedBudgetsAreSetByHand(t *testing.T) {
	t.Parallel()
	r := golden(t, "rtnode.yaml")
	tab, _ := agent.Build(r, found(r))
	id := func(pod string) frontdoor.ContainerID { return frontdoor.ContainerID{ID: strings.Repeat(pod, 64)} }
	for _, c := range []struct {
		name string
		in   frontdoor.SetRT
		code int
		want string
	}{
		{"low", frontdoor.SetRT{ContainerID: id("a"), PeriodUs: 10000, RuntimeUs: 2000}, 0, ""},
		{"high", frontdoor.SetRT{ContainerID: id("a"), PeriodUs: 10000, RuntimeUs: 4000, Core: "1"}, 0, ""},
		{"between", frontdoor.SetRT{ContainerID: id("a"), PeriodUs: 10000, RuntimeUs: 3500, Core: "1-1"}, 0, ""},
		{"with the runtime", frontdoor.SetRT{ContainerID: frontdoor.ContainerID{Runtime: "containerd", ID: id("a").ID}, PeriodUs: 10000, RuntimeUs: 2000}, 0, ""},
		{"another runtime", frontdoor.SetRT{ContainerID: frontdoor.ContainerID{Runtime: "cri-o", ID: id("a").ID}, PeriodUs: 10000, RuntimeUs: 2000}, 404, "no real-time container"},
		{"unknown", frontdoor.SetRT{ContainerID: id("f"), PeriodUs: 10000, RuntimeUs: 2000}, 404, "no real-time container"},
		{"empty", frontdoor.SetRT{PeriodUs: 10000, RuntimeUs: 2000}, 404, "no real-time container"},
		{"too low", frontdoor.SetRT{ContainerID: id("a"), PeriodUs: 10000, RuntimeUs: 1999}, 409, "2000 to 4000"},
		{"too high", frontdoor.SetRT{ContainerID: id("a"), PeriodUs: 10000, RuntimeUs: 4001}, 409, "2000 to 4000"},
		{"another period", frontdoor.SetRT{ContainerID: id("a"), PeriodUs: 20000, RuntimeUs: 4000}, 409, "admitted with 10000"},
		{"another core", frontdoor.SetRT{ContainerID: id("a"), PeriodUs: 10000, RuntimeUs: 4000, Core: "2"}, 409, "core 1 alone"},
		{"two cores", frontdoor.SetRT{ContainerID: id("a"), PeriodUs: 10000, RuntimeUs: 4000, Core: "1,2"}, 409, "core 1 alone"},
		{"no list", frontdoor.SetRT{ContainerID: id("a"), PeriodUs: 10000, RuntimeUs: 4000, Core: "one"}, 400, "list format"},
		{"beyond the plan", frontdoor.SetRT{ContainerID: id("c"), PeriodUs: 20000, RuntimeUs: 2000}, 409, "at most 1000"},
	} {
		request, reply, err := agent.Allow(tab, c.in)
		problem := (*frontdoor.Problem)(nil)
		switch {
		case c.code == 0 && (err != nil || request.RuntimeUs != c.in.RuntimeUs || request.Server != "a/app" || *request.Core != 1 || reply.RuntimeUs != c.in.RuntimeUs):
			t.Errorf("%s: %+v, %+v, %v", c.name, request, reply, err)
		case c.code != 0 && (!errors.As(err, &problem) || problem.Code != c.code || !strings.Contains(problem.Message, c.want)):
			t.Errorf("%s: %v, want %d %q", c.name, err, c.code, c.want)
		}
	}
}

// A table from the wire, whatever it is, has no budget set beyond what it says itself.
func FuzzAllow(f *testing.F) {
	f.Add(int64(10_000), int64(4_000), "1", int64(2_000), int64(4_000), int64(4_000))
	f.Fuzz(func(t *testing.T, period, runtime int64, core string, low, high, to int64) {
		id := strings.Repeat("a", 64)
		s := table.Server{ID: "s", ContainerID: "containerd://" + id, PeriodUs: 10_000, LowUs: low, HighUs: high, LeastUs: low, Core: 1}
		tab := table.Table{Servers: []table.Server{s}, Plans: []table.Plan{{Core: 1, Raise: []table.Raise{{ID: "s", ToUs: to}}}}}
		r, _, err := agent.Allow(tab, frontdoor.SetRT{ContainerID: frontdoor.ContainerID{ID: id}, PeriodUs: period, RuntimeUs: runtime, Core: core})
		if err == nil && (r.RuntimeUs < low || r.RuntimeUs > high || r.RuntimeUs > max(low, to) || r.PeriodUs != 10_000) {
			t.Fatalf("%+v is allowed within %d to %d, plan to %d", r, low, high, to)
		}
	})
}
