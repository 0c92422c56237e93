package nri_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

func TestAContainerIsMadeOnItsCoreWithItsBudget(t *testing.T) {
	n, r := start(t)
	n.add("p", 2, true)
	n.first = table.First{RuntimeUs: 2_000, PeriodUs: 10_000, Unified: map[string]string{"cpu.rt.max": "2000 10000"}}
	for name, c := range map[string]*api.Container{
		"by its CDI device":            container("p", "app", withDevice("claim-of-p")),
		"by its environment":           container("p", "app", func(c *api.Container) { c.Env = []string{"MAINSPRING_CLAIM=default/p-app"} }),
		"by its name":                  container("p", "app"),
		"restored under another name":  container("p", "app", withDevice("claim-of-p"), restored),
		"restored, found by its claim": container("p", "app", func(c *api.Container) { c.Env = []string{"MAINSPRING_CLAIM=default/p-app"} }, restored),
	} {
		got, err := r.create(t, "p", c)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		cpu := got.GetCpu()
		if cpu.GetCpus() != "2" || cpu.GetRealtimeRuntime().GetValue() != 2_000 || cpu.GetRealtimePeriod().GetValue() != 10_000 || got.GetUnified()["cpu.rt.max"] != "2000 10000" {
			t.Errorf("%s: %v", name, got)
		}
		if asked := n.rooms(); len(asked) != 1 || asked[0].ID != "p/app" || asked[0].Cgroup != "/kubepods/burstable/podp/"+containerID || asked[0].ContainerID != containerID {
			t.Errorf("%s: asked for room for %+v", name, asked)
		}
	}
}

// Every container can be checkpointed: a client that asks at the wrong moment must not be what forbids it.
func TestContainersAreToldHowToBeCheckpointed(t *testing.T) {
	n, r := start(t)
	n.add("p", 2, true)
	own := func(c *api.Container) { c.Annotations = map[string]string{"org.criu.config": "/etc/criu/mine.conf"} }
	for name, tc := range map[string]struct {
		pod  string
		c    *api.Container
		want string
	}{
		"one of ours":           {"p", container("p", "app"), criuFile},
		"another one":           {"q", container("q", "app"), criuFile},
		"one with its own file": {"q", container("q", "app", own), ""},
	} {
		got, err := r.create(t, tc.pod, tc.c)
		if err != nil || r.annotations["org.criu.config"] != tc.want {
			t.Errorf("%s: %v, %v, annotations %v; want %q", name, got, err, r.annotations, tc.want)
		}
	}
}

func TestOthersAreLetThrough(t *testing.T) {
	n, r := start(t)
	n.add("p", 2, true)
	for name, tc := range map[string]struct {
		pod string
		c   *api.Container
	}{
		"another pod":                      {"q", container("q", "app")},
		"the same pod's other container":   {"p", container("p", "side")},
		"another driver's claim":           {"q", container("q", "app", func(c *api.Container) { c.CDIDevices = []*api.CDIDevice{{Name: "vendor.com/gpu=0"}} })},
		"an environment that claims to be": {"q", container("q", "app", func(c *api.Container) { c.Env = []string{"MAINSPRING_CLAIM=default/p-app"} })},
		"no cgroup at all":                 {"q", &api.Container{Id: "x", Name: "app"}},
	} {
		if got, err := r.create(t, tc.pod, tc.c); err != nil || got.GetCpu().GetCpus() != "" || got.GetCpu().GetRealtimeRuntime() != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if asked := n.rooms(); len(asked) > 0 {
		t.Errorf("asked for room for %+v", asked)
	}
}

// One container only is ever refused: it has a claim of ours, and nobody here knows of which core.
func TestAClaimWithoutACoreIsRefused(t *testing.T) {
	_, r := start(t)
	_, err := r.create(t, "p", container("p", "app", withDevice("never-seen")))
	if err == nil || !strings.Contains(err.Error(), "container app of pod p: the core of its claim is not known on this node; the kubelet tries again") {
		t.Errorf("error %v", err)
	}
	if _, err := r.create(t, "q", container("q", "app")); err != nil {
		t.Errorf("after that, another pod: %v", err)
	}
}

// The controller may not have written the server yet, and the fast path may have no room, or be away. The container
// is made on its core all the same.
func TestWithoutABudgetItIsMadeOnItsCore(t *testing.T) {
	n, r := start(t)
	n.first = table.First{RuntimeUs: 1, PeriodUs: 1}
	n.add("early", 1, false)
	n.add("full", 3, true)
	n.refuse = errors.New("no room")
	n.add("odd", 3, true)
	odd := container("odd", "app")
	odd.Linux.CgroupsPath = "what:is"
	for pod, c := range map[string]*api.Container{"early": container("early", "app"), "full": container("full", "app"), "odd": odd} {
		core := map[string]string{"early": "1", "full": "3", "odd": "3"}[pod]
		got, err := r.create(t, pod, c)
		if err != nil || got.GetCpu().GetCpus() != core || got.GetCpu().GetRealtimeRuntime() != nil {
			t.Errorf("%s: %v, %v", pod, got, err)
		}
	}
	if asked := n.rooms(); len(asked) != 1 {
		t.Errorf("asked for room for %+v", asked)
	}
}

func TestItWaitsForTheTable(t *testing.T) {
	n, r := start(t)
	n.first = table.First{RuntimeUs: 2_000, PeriodUs: 10_000}
	n.add("late", 2, false)
	timer := time.AfterFunc(50*time.Millisecond, func() { n.add("late", 2, true) })
	defer timer.Stop()
	got, err := r.create(t, "late", container("late", "app"))
	if err != nil || got.GetCpu().GetRealtimeRuntime().GetValue() != 2_000 {
		t.Errorf("%v, %v", got, err)
	}
}

// The server's core is where it runs, which need not be that of the claim.
func TestTheTableKnowsTheCoreBetterThanTheClaim(t *testing.T) {
	n, r := start(t)
	n.add("p", 2, true)
	n.servers["p"][0].Core = 5
	if got, err := r.create(t, "p", container("p", "app")); err != nil || got.GetCpu().GetCpus() != "5" {
		t.Errorf("%v, %v", got, err)
	}
	// A pod that ran before its McKube has no claim of the kubelet's, and is in the table.
	delete(n.claims, types.UID("p"))
	if got, err := r.create(t, "p", container("p", "app")); err != nil || got.GetCpu().GetCpus() != "5" {
		t.Errorf("without a claim: %v, %v", got, err)
	}
}

func TestTheAgentIsToldOfContainers(t *testing.T) {
	n, r := newNode(), &runtime{}
	n.add("before", 1, true)
	stopped := container("before", "app", func(c *api.Container) { c.Id, c.State = "stopped", api.ContainerState_CONTAINER_STOPPED })
	lonely := container("gone", "app")
	r.pods = []*api.PodSandbox{sandbox("before")}
	r.containers = []*api.Container{container("before", "app"), stopped, lonely, container("before", "side")}
	startRuntime(t, r)
	connect(t, r, n)
	group := func(pod string) string { return "/kubepods/burstable/pod" + pod + "/" + containerID }
	want := "before app " + containerID + " " + group("before")
	if got := n.told(); got != want {
		t.Errorf("at the start: %s, want %s", got, want)
	}
	n.add("p", 2, true)
	err := r.PostCreateContainer(t.Context(), &api.PostCreateContainerRequest{Pod: sandbox("p"), Container: container("p", "app", withDevice("claim-of-p"), restored)})
	if want += ", p app " + containerID + " " + group("p"); err != nil || n.told() != want {
		t.Errorf("%v, told %s, want %s", err, n.told(), want)
	}
}

// cpuManagerPolicy static updates the cpuset of every container now and again.
func TestUpdatesKeepTheCore(t *testing.T) {
	n, r := start(t)
	n.add("p", 2, true)
	for pod, want := range map[string]string{"p": "2", "q": "0-3"} {
		answer, err := r.UpdateContainer(t.Context(), &api.UpdateContainerRequest{
			Pod: sandbox(pod), Container: container(pod, "app"), LinuxResources: &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: "0-3"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		got := "0-3"
		for _, u := range answer.GetUpdate() {
			if u.GetContainerId() == containerID && u.GetLinux().GetResources().GetCpu().GetCpus() != "" {
				got = u.GetLinux().GetResources().GetCpu().GetCpus()
			}
		}
		if got != want {
			t.Errorf("pod %s gets %s, want %s", pod, got, want)
		}
	}
}

// The runtime may be restarted at any time; the plugin comes back and hears what runs.
func TestItConnectsAgain(t *testing.T) {
	n, r := newNode(), &runtime{}
	startRuntime(t, r)
	w := newWire(t, r)
	connectAt(t, r, n, w.socket)
	n.add("p", 2, true)
	r.mu.Lock()
	r.pods, r.containers = []*api.PodSandbox{sandbox("p")}, []*api.Container{container("p", "app")}
	r.mu.Unlock()
	for range 2 {
		w.cut()
		r.expectConnected(t)
		eventually(t, "telling of what runs", func() bool { return strings.HasPrefix(n.told(), "p app ") })
	}
	if got, err := r.create(t, "p", container("p", "app")); err != nil || got.GetCpu().GetCpus() != "2" {
		t.Errorf("%v, %v", got, err)
	}
}
