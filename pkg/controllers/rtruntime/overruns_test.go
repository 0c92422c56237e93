package rtruntime_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/frontdoor"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// byContainerID reads pods as the manager's cache does by its index.
type byContainerID struct{ client.Reader }

func (r byContainerID) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	applied := (&client.ListOptions{}).ApplyOptions(options)
	id, _ := applied.FieldSelector.RequiresExactMatch(rtruntime.ContainerIDField)
	all := &corev1.PodList{}
	if err := r.Reader.List(ctx, all); err != nil {
		return err
	}
	for i := range all.Items {
		for _, has := range rtruntime.ContainerIDs(&all.Items[i]) {
			if has == id {
				list.(*corev1.PodList).Items = append(list.(*corev1.PodList).Items, all.Items[i])
			}
		}
	}
	return nil
}

// runs has the pod's container run under an ID.
func (c *cluster) runs(p *corev1.Pod, id string) {
	c.Helper()
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "app", ContainerID: "containerd://" + id, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}
	c.must(c.Status().Update(c.Context(), p))
}

var ids int

// newID is a container ID that no other test has.
func newID() string {
	ids++
	return fmt.Sprintf("%032x%032x", time.Now().UnixNano(), ids)
}

func (l *loop) overruns() *rtruntime.Overruns {
	return &rtruntime.Overruns{Pods: byContainerID{l.Client}, Live: l.Client, Client: l.Client, Store: l.store, Clock: l.clock}
}

func overrun(node, id string, timestamp uint64) frontdoor.Overrun {
	return frontdoor.Overrun{Node: node, ContainerID: frontdoor.ContainerID{ID: id}, Timestamp: timestamp}
}

// The report of an overrun raises exactly the container that it names, survives the controller, and ends.
func TestAReportedOverrunIsKeptInTheAPI(t *testing.T) {
	c := newCluster(t)
	n := c.node("n", 1)
	first, second := c.run("a", n.Name, "High", 10, 20, 0), c.run("b", n.Name, "High", 10, 20, 0)
	one, two := newID(), newID()
	c.runs(first, one)
	c.runs(second, two)
	l := c.loop()
	l.lookAndAct(n.Name)
	l.look()
	reply, err := l.overruns().Report(t.Context(), overrun(n.Name, two, 7))
	if err != nil || reply.Result != rtruntime.ResultAccepted || reply.Pod != second.Name || reply.Container != "app" {
		t.Fatalf("%+v, %v", reply, err)
	}
	a, b := c.prefix+"a@0", c.prefix+"b@0"
	expect := func(l *loop, want string) time.Duration {
		t.Helper()
		wait := l.lookAndAct(n.Name)
		if got := spec(c.rtNode(n.Name).Spec); got != want {
			t.Errorf("the spec is %s, want %s", got, want)
		}
		return wait
	}
	low, high := a+" low 10/20, "+b+" low 10/20", a+" low 10/20, "+b+" hi 10/20"
	if second.UID < first.UID {
		low, high = b+" low 10/20, "+a+" low 10/20", b+" hi 10/20, "+a+" low 10/20"
	}
	expect(l, high)
	for range 3 { // repeated, and an older one that comes late
		if reply, err := l.overruns().Report(t.Context(), overrun(n.Name, two, 7)); err != nil || reply.Result != rtruntime.ResultDuplicate {
			t.Errorf("%+v, %v", reply, err)
		}
	}
	before := c.rtNode(n.Name).ResourceVersion
	if reply, err := l.overruns().Report(t.Context(), overrun(n.Name, two, 6)); err != nil || reply.Result != rtruntime.ResultDuplicate || c.rtNode(n.Name).ResourceVersion != before {
		t.Errorf("%+v, %v", reply, err)
	}
	next := c.loop() // another leader
	next.clock.SetTime(l.clock.Now())
	expect(next, high)
	next.clock.Step(6 * time.Second)
	next.lookAndAct(n.Name)
	next.clock.Step(6 * time.Second) // it had seen no calm
	expect(next, low)
	if reply, err := next.overruns().Report(t.Context(), overrun(n.Name, two, 7)); err != nil || reply.Result != rtruntime.ResultDuplicate {
		t.Errorf("a replay: %+v, %v", reply, err)
	}
	expect(next, low)
}

func TestReportsThatMeanNoContainerAreRefused(t *testing.T) {
	c := newCluster(t)
	n := c.node("n", 1)
	governed, plain, finished := c.run("a", n.Name, "High", 10, 20, 0), statetest.On(statetest.Pod("default", c.prefix+"plain", "", "app"), n.Name), c.run("c", n.Name, "Low", 10, 85, 0)
	plain.Spec.Containers[0].Image = "none"
	c.must(c.Create(t.Context(), plain))
	mine, others, least, former := newID(), newID(), newID(), newID()
	c.runs(governed, mine)
	c.runs(plain, others)
	c.runs(finished, least)
	governed.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ContainerID: "containerd://" + former}
	c.must(c.Status().Update(t.Context(), governed))
	l := c.loop()
	l.lookAndAct(n.Name)
	l.look()
	o := l.overruns()
	for _, x := range []struct {
		name string
		in   frontdoor.Overrun
		code int
		want string
	}{
		{"an empty ID", overrun(n.Name, "", 1), http.StatusNotFound, "no running container"},
		{"an unknown one", overrun(n.Name, newID(), 1), http.StatusNotFound, "no running container"},
		{"a part of one", overrun(n.Name, mine[:12], 1), http.StatusNotFound, "no running container"},
		{"one that has ended", overrun(n.Name, former, 1), http.StatusNotFound, "no running container"},
		{"another node", overrun("elsewhere", mine, 1), http.StatusConflict, "runs on node"},
		{"an ordinary container", overrun(n.Name, others, 1), http.StatusConflict, "a McKube gives it one"},
		{"another runtime", frontdoor.Overrun{Node: n.Name, ContainerID: frontdoor.ContainerID{Runtime: "cri-o", ID: mine}, Timestamp: 1}, http.StatusNotFound, "no running container"},
	} {
		_, err := o.Report(t.Context(), x.in)
		if problem := (*frontdoor.Problem)(nil); !errors.As(err, &problem) || problem.Code != x.code || !strings.Contains(problem.Message, x.want) {
			t.Errorf("%s: %v, want %d %q", x.name, err, x.code, x.want)
		}
	}
	if reply, err := o.Report(t.Context(), overrun(n.Name, least, 1)); err != nil || reply.Result != rtruntime.ResultIgnored || !strings.Contains(reply.Reason, "Low") {
		t.Errorf("criticality Low: %+v, %v", reply, err)
	}
	if r := c.rtNode(n.Name); len(r.Annotations) != 0 {
		t.Errorf("something was written: %v", r.Annotations)
	}
}

// Many reports at once, while the agent writes: none is lost, and each is taken once.
func TestReportsAtOnce(t *testing.T) {
	c := newCluster(t)
	n := c.node("n", 1)
	p := c.run("a", n.Name, "High", 10, 20, 0)
	id := newID()
	c.runs(p, id)
	l := c.loop()
	l.lookAndAct(n.Name)
	l.look()
	o := l.overruns()
	var group sync.WaitGroup
	var mu sync.Mutex
	results := map[string]int{}
	for range 4 {
		group.Go(func() {
			reply, err := o.Report(t.Context(), overrun(n.Name, id, 42))
			mu.Lock()
			defer mu.Unlock()
			if problem := (*frontdoor.Problem)(nil); errors.As(err, &problem) && problem.Code == http.StatusServiceUnavailable {
				results["again"]++
			} else if err != nil {
				t.Error(err)
			}
			results[reply.Result]++
		})
	}
	group.Wait()
	if results[rtruntime.ResultAccepted] != 1 || rtruntime.AskedOn(c.rtNode(n.Name))[string(p.UID)+"/app"].Timestamp != 42 {
		t.Errorf("results: %v", results)
	}
}
