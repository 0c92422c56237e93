package driver_test

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// A pod comes, its claim is prepared, and what its container finds says where it is; the pod goes.
func TestAClaimIsPreparedAndUnprepared(t *testing.T) {
	n := newNode(t)
	n.report(report("rtgroup", 400_000, 1, 2, 3))
	n.expectPublished("core-1 300000 rtgroup", "core-2 300000 rtgroup", "core-3 300000 rtgroup")
	claim := n.claim("a", "core-2", 200_000)
	for range 2 { // the kubelet asks again after any fault
		cdi, refusal := n.plugin.prepare(claim)
		if refusal != "" || !slices.Equal(cdi, []string{"cpu.mckube.io/claim=" + string(claim.UID)}) {
			t.Fatalf("CDI devices %q, refused: %s", cdi, refusal)
		}
	}
	n.expectPrepared(claim)
	spec, err := os.ReadFile(filepath.Join(n.cdi, "cpu.mckube.io-claim_"+string(claim.UID)+".json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"cdiVersion": "0.5.0"`, `"kind": "cpu.mckube.io/claim"`, `"MAINSPRING_CORES=2"`, `"MAINSPRING_CLAIM=default/a"`} {
		if !strings.Contains(string(spec), want) {
			t.Errorf("%s is missing from %s", want, spec)
		}
	}
	n.kubelet.register() // a kubelet that was restarted finds the plugin again, and asks again
	if _, refusal := n.plugin.prepare(claim); refusal != "" {
		t.Error(refusal)
	}
	n.plugin.unprepare(claim)
	n.plugin.unprepare(claim)
	n.expectPrepared()
}

func TestDevicesFollowTheReport(t *testing.T) {
	n := newNode(t)
	n.report(report("rtgroup", 400_000, 1, 2))
	n.expectPublished("core-1 300000 rtgroup", "core-2 300000 rtgroup")
	n.report(report("fifo", 900_000, 1, 2))
	n.expectPublished("core-1 800000 fifo", "core-2 800000 fifo")
	cores := machine(4)
	cores[2].Online = false
	n.hotplug(cores)
	n.report(report("fifo", 900_000, 1, 2))
	n.expectPublished("core-1 800000 fifo")
	n.plugin.watchHealth(map[string]string{"core-1": "HEALTHY ", "core-2": "UNHEALTHY it is offline"})
	broken := report("fifo", 900_000, 1)
	broken.Cores[0].Broken = 2
	n.report(broken)
	n.plugin.watchHealth(map[string]string{"core-1": "UNHEALTHY more than its capacity was promised 2 times: a defect of the agent"})
	n.restart() // without a report what was published stays
	n.expectPublished("core-1 800000 fifo")
	if err := n.driver.Update(report("fifo", 900_000, 0, 1, 3)); err == nil || !strings.Contains(err.Error(), "--reserved-cores") {
		t.Errorf("every online core was offered: %v", err)
	}
	n.expectPublished()
}

// A kubelet that starts deletes the slices of its node.
func TestDevicesComeBack(t *testing.T) {
	n := newNode(t)
	n.report(report("fifo", 900_000, 1))
	n.expectPublished("core-1 800000 fifo")
	for range 2 {
		if err := api.ResourceV1().ResourceSlices().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		n.expectPublished("core-1 800000 fifo")
	}
}

// timers tells of each timer that is made.
type timers struct {
	clock.RealClock
	made chan time.Duration
}

func (c timers) NewTimer(d time.Duration) clock.Timer {
	c.made <- d
	return c.RealClock.NewTimer(d)
}

// An agent that has just started is asked before the fast path has reported.
func TestAClaimWaitsForTheFirstReport(t *testing.T) {
	n := newNode(t)
	made := make(chan time.Duration, 8)
	n.clock = timers{made: made}
	n.restart()
	claim := n.claim("early", "core-1", 100_000)
	refused := make(chan string, 1)
	go func() {
		_, refusal := n.plugin.prepare(claim)
		refused <- refusal
	}()
	<-made // it waits
	n.report(report("fifo", 900_000, 1))
	if refusal := <-refused; refusal != "" {
		t.Error(refusal)
	}
	n.expectPrepared(claim)
}

// What the scheduler knew may be old: the node has the last word.
func TestClaimsAreRefused(t *testing.T) {
	n := newNode(t)
	early := n.claim("early", "core-1", 100_000)
	if _, refusal := n.plugin.prepare(early); !strings.Contains(refusal, "has not reported yet which cores") {
		t.Errorf("before the first report: %q", refusal)
	}
	n.report(report("fifo", 900_000, 1, 2, 3))
	if _, refusal := n.plugin.prepare(early); refusal != "" {
		t.Error(refusal)
	}
	cores := machine(4)
	cores[3].Online = false
	n.hotplug(cores)
	gone := n.claim("gone", "core-1", 1_000)
	n.delete(gone)
	for want, claim := range map[string]*resourcev1.ResourceClaim{
		"claim default/off is on core 3, which is offline":                                                 n.claim("off", "core-3", 1_000),
		"claim default/host is on core 0, which takes no claims: it is reserved, isolated or not governed": n.claim("host", "core-0", 1_000),
		"claim default/none is on core 7, which is offline":                                                n.claim("none", "core-7", 1_000),
		`device core-1 is in pool "edge-2", that of another node`:                                          n.claim("foreign", "core-1", 1_000, func(c *resourcev1.ResourceClaim) { first(c).Pool = "edge-2" }),
		"overbooked: claim default/wide takes 700001 ppm of core 1, which has 800000":                      n.claim("wide", "core-1", 700_001),
		"retrieve claim default/gone":                                                                      gone,
	} {
		if cdi, refusal := n.plugin.prepare(claim); !strings.Contains(refusal, want) || len(cdi) > 0 {
			t.Errorf("%s: %q (%q), want %q", claim.Name, refusal, cdi, want)
		}
	}
	n.expectPrepared(early)
	// Prepared, and then its core goes: nobody makes another container there.
	cores = machine(4)
	cores[1].Online = false
	n.hotplug(cores)
	if _, refusal := n.plugin.prepare(early); !strings.Contains(refusal, "is on core 1, which is offline") {
		t.Errorf("again, offline: %q", refusal)
	}
	n.hotplug(machine(4))
	if _, refusal := n.plugin.prepare(early); refusal != "" {
		t.Errorf("online again: %s", refusal)
	}
}

// A pod that was deleted by force while the kubelet had lost its records is never unprepared; its claim must not
// stand in the way of the next.
func TestClaimsOfPodsThatAreGoneAreForgotten(t *testing.T) {
	n := newNode(t)
	n.report(report("fifo", 900_000, 1))
	before, kept := n.claim("before", "core-1", 500_000), n.claim("kept", "core-1", 100_000)
	for _, c := range []*resourcev1.ResourceClaim{before, kept} {
		if _, refusal := n.plugin.prepare(c); refusal != "" {
			t.Fatal(refusal)
		}
	}
	n.delete(before)
	after := n.claim("after", "core-1", 700_000)
	if _, refusal := n.plugin.prepare(after); refusal != "" {
		t.Errorf("beside a claim that is gone: %s", refusal)
	}
	n.expectPrepared(after, kept)
	n.delete(after)
	n.delete(kept)
	n.driver.Stop()
	n.start()
	eventually(t, "forgetting at the start", func() bool {
		entries, err := os.ReadDir(n.records())
		return err == nil && len(entries) == 0
	})
	n.expectPrepared()
}

// A claim waits for its container in the table, so that the container starts with its budget; not for ever.
func TestPreparingWaitsForTheTable(t *testing.T) {
	n := newNode(t)
	n.servers = servers{"uid-pod-a": {{ID: "uid-pod-a/app", Core: 1}}}
	n.restart()
	n.report(report("fifo", 900_000, 1))
	if _, refusal := n.plugin.prepare(n.claim("a", "core-1", 1_000)); refusal != "" {
		t.Error(refusal)
	}
	late := n.claim("late", "core-1", 1_000) // the controller does not write it: it goes on all the same
	if _, refusal := n.plugin.prepare(late); refusal != "" {
		t.Error(refusal)
	}
}

// crashes are what is on disk when the process dies between two steps; each is made from a claim that is
// prepared whole.
var crashes = map[string]func(records, cdi, uid string) error{
	"with a record that is half written": func(records, _, uid string) error {
		return os.WriteFile(filepath.Join(records, ".mainspring-new-1"), []byte(`{"ver`), 0o600)
	},
	"after the record, before the CDI specification": func(_, cdi, uid string) error {
		return os.Remove(filepath.Join(cdi, "cpu.mckube.io-claim_"+uid+".json"))
	},
	"with a CDI specification that is half written": func(_, cdi, uid string) error {
		return os.WriteFile(filepath.Join(cdi, ".mainspring-new-2"), []byte(`{`), 0o600)
	},
	"and the machine too: /run is empty": func(_, cdi, uid string) error { return os.RemoveAll(cdi) },
	"and the record's disk loses bytes": func(records, _, uid string) error {
		return os.Truncate(filepath.Join(records, uid+".json"), 20)
	},
	"and the record is gone": func(records, _, uid string) error { return os.Remove(filepath.Join(records, uid+".json")) },
}

func TestRestartBetweenAnyTwoSteps(t *testing.T) {
	n := newNode(t)
	for name, crash := range crashes {
		for _, then := range []string{"prepare", "unprepare"} {
			t.Run(name+", then "+then, func(t *testing.T) {
				n.report(report("fifo", 900_000, 1))
				claim := n.claim(strings.ToLower(strings.Map(letters, name+then)), "core-1", 1_000)
				if _, refusal := n.plugin.prepare(claim); refusal != "" {
					t.Fatal(refusal)
				}
				n.driver.Stop()
				if err := crash(n.records(), n.cdi, string(claim.UID)); err != nil {
					t.Fatal(err)
				}
				n.start()
				n.report(report("fifo", 900_000, 1))
				if then == "prepare" {
					if _, refusal := n.plugin.prepare(claim); refusal != "" {
						t.Fatal(refusal)
					}
					n.expectPrepared(claim)
				}
				n.plugin.unprepare(claim)
				n.expectPrepared()
				n.delete(claim)
			})
		}
	}
}

func letters(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
		return r
	}
	return -1
}

// Any order of what kubelet, agent and machine may do ends with exactly the claims prepared that should be.
// Restarts take a second, so these are few histories, the same in every run.
func TestAnyHistoryKeepsTheBooks(t *testing.T) {
	n := newNode(t)
	var claims []*resourcev1.ResourceClaim
	for _, name := range []string{"a", "b", "c"} {
		claims = append(claims, n.claim(name, "core-1", 250_000))
	}
	n.report(report("fifo", 900_000, 1))
	random := rand.New(rand.NewPCG(1, 2))
	prepared := map[string]*resourcev1.ResourceClaim{}
	for range 25 {
		claim := claims[random.IntN(len(claims))]
		switch step := []string{"prepare", "prepare", "unprepare", "restart", "kubelet", "reboot"}[random.IntN(6)]; step {
		case "prepare":
			if _, refusal := n.plugin.prepare(claim); refusal != "" {
				t.Fatal(refusal)
			}
			prepared[claim.Name] = claim
		case "unprepare":
			n.plugin.unprepare(claim)
			delete(prepared, claim.Name)
		case "kubelet":
			n.plugin = n.kubelet.register()
		default:
			if step == "reboot" {
				if err := os.RemoveAll(n.cdi); err != nil {
					t.Fatal(err)
				}
			}
			n.restart()
			n.report(report("fifo", 900_000, 1))
		}
		n.expectPrepared(slices.Collect(maps.Values(prepared))...)
	}
}

// The API server away: what is prepared stays, and nothing is forgotten by mistake.
func TestWithoutTheAPIServerNothingIsForgotten(t *testing.T) {
	n := newNode(t)
	n.report(report("fifo", 900_000, 1))
	claim := n.claim("a", "core-1", 1_000)
	if _, refusal := n.plugin.prepare(claim); refusal != "" {
		t.Fatal(refusal)
	}
	n.driver.Stop()
	here := api.Interface
	defer func() { api.Interface = here }()
	api.Interface = unreachable(t)
	n.start()
	n.report(table.Report{Backend: "fifo", Cores: report("fifo", 900_000, 1).Cores})
	n.expectPrepared(claim)
	n.plugin.unprepare(claim) // a pod may end without it
	n.expectPrepared()
	api.Interface = here
	if _, err := api.ResourceV1().ResourceClaims("default").Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}
