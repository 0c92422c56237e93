package demo_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/cli/demo"
	"github.com/mainspring-rt/mainspring/pkg/cli/observe"
	"github.com/mainspring-rt/mainspring/pkg/cli/report"
)

// machine is a node of pool realtime with three cores and these pods on them.
func machine(claim string, cores map[int][]observe.Server) observe.Node {
	n := observe.Node{Name: "node-" + claim, Claim: claim, Pool: "realtime", Phase: observe.Ready, Price: 0.02}
	for id := 1; id <= 3; id++ {
		c := observe.Core{ID: id, Capacity: 0.9, Servers: cores[id]}
		for _, s := range c.Servers {
			c.Promised += s.Share()
		}
		n.Cores = append(n.Cores, c)
	}
	return n
}

func on(pod, criticality, level string) observe.Server {
	return observe.Server{Namespace: "demo", Pod: pod, Container: pod, Criticality: criticality, Budget: 3 * time.Millisecond, Period: 10 * time.Millisecond, Level: level}
}

// realtime is machines whose pods' McKubes are ready.
func realtime(machines ...observe.Node) demo.View {
	v := demo.View{State: observe.State{At: begun, Nodes: machines}}
	for _, n := range machines {
		for _, c := range n.Cores {
			for _, s := range c.Servers {
				v.McKubes = append(v.McKubes, observe.McKube{Namespace: "demo", Name: s.Pod, Pod: s.Pod, Ready: true})
			}
		}
	}
	return v
}

func full() map[int][]observe.Server {
	return map[int][]observe.Server{
		1: {on("vision", "Middle", "low"), on("lidar", "Low", "low")},
		2: {on("planner", "Middle", "low"), on("recorder", "Low", "low")},
		3: {on("steering", "High", "low")},
	}
}

func TestRealtimePodsMustBeReadyOnTheirCores(t *testing.T) {
	t.Parallel()
	c := chapter(t, "cores")
	expect(t, "all there", c, realtime(machine("a", full())), demo.Memory{}, true, "5 of 5 containers")
	expect(t, "nothing yet", c, realtime(), demo.Memory{}, false, "no core yet")
	elsewhere := full()
	elsewhere[1], elsewhere[3] = elsewhere[3], elsewhere[1]
	expect(t, "other cores", c, realtime(machine("a", elsewhere)), demo.Memory{}, false, "2 of 5")
	unready := realtime(machine("a", full()))
	unready.McKubes[0].Ready = false
	expect(t, "a McKube is not ready", c, unready, demo.Memory{}, false, "4 of 5")
}

func TestBrakeMustMoveALesserPodAndBeRaised(t *testing.T) {
	t.Parallel()
	c := chapter(t, "brake")
	before := demo.Memory{Nodes: 1, Claims: map[string]bool{"a": true}, Where: map[string]string{"recorder": "node-a", "planner": "node-a"}}
	moved := func(level string) map[int][]observe.Server {
		cores := full()
		cores[2] = []observe.Server{on("brake", "High", level), on("planner", "Middle", "low")}
		cores[3] = append(cores[3], on("recorder", "Low", "low"))
		return cores
	}
	expect(t, "as told", c, realtime(machine("a", moved("hi"))), before, true, "moved: recorder to core 3")
	expect(t, "not raised", c, realtime(machine("a", moved("low"))), before, false, "at level low")
	expect(t, "not there", c, realtime(machine("a", full())), before, false, "brake is not on core 2 yet")
	expect(t, "a machine was opened", c, realtime(machine("a", moved("hi")), machine("b", nil)), before, false, "")
	evicted := moved("hi")
	evicted[3] = evicted[3][:1]
	expect(t, "the victim is gone", c, realtime(machine("a", evicted)), before, false, "recorder is not on its machine any more")
	nobody := full()
	nobody[2] = append(nobody[2], on("brake", "High", "hi"))
	expect(t, "nobody moved", c, realtime(machine("a", nobody)), before, false, "moved: nobody")
}

func TestPodsWithoutACoreMustOpenAMachine(t *testing.T) {
	t.Parallel()
	c := chapter(t, "new node")
	before := demo.Memory{Nodes: 1, Claims: map[string]bool{"a": true}, Where: map[string]string{"recorder": "node-a"}}
	second := machine("b", map[int][]observe.Server{1: {on("press", "High", "low")}, 2: {on("crane", "High", "low")}})
	expect(t, "as told", c, realtime(machine("a", full()), second), before, true, "2 of 2 pods have cores of a new machine, 2 machines")
	old := full()
	old[3] = append(old[3], on("press", "High", "low"), on("crane", "High", "low"))
	expect(t, "on the old machine", c, realtime(machine("a", old)), before, false, "0 of 2")
	evicted := full()
	evicted[2] = evicted[2][:1]
	expect(t, "somebody was evicted", c, realtime(machine("a", evicted), second), before, false, "recorder is not on its machine")
}

func TestTheClimbEndsWithEverythingWhereItWasSent(t *testing.T) {
	t.Parallel()
	c := chapter(t, "ladder")
	first := func(pods ...observe.Server) observe.Node {
		return machine("a", map[int][]observe.Server{1: append([]observe.Server{on("control", "High", "low")}, pods...), 2: {on("large-x", "Low", "low")}})
	}
	second := func(pods ...observe.Server) observe.Node {
		return machine("b", map[int][]observe.Server{1: {on("robot", "High", "low")}, 2: pods})
	}
	small, peer, bare := on("small-x", "Low", "low"), on("peer-x", "High", "low"), on("bare", "Low", "low")
	third := machine("c", map[int][]observe.Server{1: {peer}})
	expect(t, "as told", c, realtime(first(), second(small), third), demo.Memory{}, true, "small on b, peer on c, bare evicted")
	expect(t, "not there yet", c, realtime(first()), demo.Memory{}, false, "not on their cores yet")
	expect(t, "bare is there", c, realtime(first(bare), second(small), third), demo.Memory{}, false, "bare still there")
	expect(t, "small is where it was", c, realtime(first(small), second(), third), demo.Memory{}, false, "small on a")
	expect(t, "peer is on the second", c, realtime(first(), second(small, peer)), demo.Memory{}, false, "peer on b")
	under := first()
	under.Pressure = true
	expect(t, "under pressure", c, realtime(under, second(small), third), demo.Memory{}, false, "under pressure: true")
}

func TestPageShowsTheCores(t *testing.T) {
	t.Parallel()
	r := record()
	r.Results[6].Cores = []observe.Node{machine("edge-a", full())}
	page, err := r.Page()
	if err != nil {
		t.Fatal(err)
	}
	var html bytes.Buffer
	if err := report.Write(&html, page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"At the end of chapter 7, real-time pods on cores", "60 % of the core, at most 90 %", "steering: High, 3ms of 10ms, low",
		`<i style="width: 30.00%; background: var(--s5)" title="steering: High, 3ms of 10ms, low">`,
	} {
		if !strings.Contains(html.String(), want) {
			t.Errorf("%q is missing in the page", want)
		}
	}
}
