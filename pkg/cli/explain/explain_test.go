package explain_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/cli/explain"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// brake is a pending pod as the webhook leaves it, its McKube and the template.
func brake(criticality mcv1.Criticality, lowMs, highMs int64) (*corev1.Pod, *mcv1.McKube, runtime.Object) {
	m := statetest.McKube("car", "brake", "brake", criticality, lowMs, highMs)
	template, err := rtdra.Template(m, state.DefaultGranularity)
	if err != nil {
		panic(err)
	}
	p := statetest.WithClaim(statetest.Pod("car", "brake", "brake-1", "app"), "app", "brake-app")
	p.Spec.ResourceClaims[0].ResourceClaimTemplateName = &template.Name
	return p, m, template
}

// cluster is two nodes of two cores; video (Low, 60 %) and lidar (Middle, 80 %) hold the cores of the first.
func cluster() []runtime.Object {
	a, b := statetest.Node("node-a", "a"), statetest.Node("node-b", "b")
	video := statetest.On(statetest.WithClaim(statetest.Pod("car", "video", "video-1", "app"), "app", "video-app"), "node-a")
	lidar := statetest.On(statetest.WithClaim(statetest.Pod("car", "lidar", "lidar-1", "app"), "app", "lidar-app"), "node-a")
	b.Spec.Taints = []corev1.Taint{{Key: "maintenance", Effect: corev1.TaintEffectNoSchedule}}
	return []runtime.Object{
		a, b, statetest.Slice(a, statetest.Cores(2)...), statetest.Slice(b, statetest.Cores(2)...),
		video, statetest.McKube("car", "video", "video", "Low", 60, 60), statetest.Claim(video, "video-app", "app", "node-a", 0, 601_000),
		lidar, statetest.McKube("car", "lidar", "lidar", "Middle", 80, 80), statetest.Claim(lidar, "lidar-app", "app", "node-a", 1, 801_000),
	}
}

// running is the pod on core 0 of a node of its own, as the agent read it back.
func running(change func(p *corev1.Pod, m *mcv1.McKube, n *v1alpha1.RTNode)) []runtime.Object {
	p, m, template := brake("High", 20, 40)
	node := statetest.Node("node-c", "c")
	p = statetest.On(p, "node-c")
	server := statetest.RTServer(p, "app", 0)
	server.Criticality, server.BudgetLowUs, server.BudgetHighUs = "High", 20_000, 40_000
	r := statetest.RTNode(node, server)
	r.Status = v1alpha1.RTNodeStatus{
		Backend: "simulated", BudgetGranularityUs: 100,
		Servers:    []v1alpha1.RTServerStatus{{PodUID: p.UID, Container: "app", BudgetUs: 20_000, PeriodUs: 100_000, Cores: []int32{0}, Level: "low", Overruns: 3}},
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionAgentAlive, Status: metav1.ConditionTrue}},
	}
	claim := statetest.Claim(p, "brake-app", "app", "node-c", 0, 401_000)
	change(p, m, r)
	return []runtime.Object{node, statetest.Slice(node, statetest.Cores(2)...), p, m, template, claim, r}
}

func unchanged(*corev1.Pod, *mcv1.McKube, *v1alpha1.RTNode) {}

// scenarios are clusters in which somebody asks about pod brake, by the name of the golden file.
func scenarios() map[string][]runtime.Object {
	all := map[string][]runtime.Object{
		"runs": running(unchanged),
		"silent-agent": running(func(_ *corev1.Pod, _ *mcv1.McKube, n *v1alpha1.RTNode) {
			n.Status.Conditions[0].Status = metav1.ConditionFalse
		}),
		"stale-rtnode": running(func(_ *corev1.Pod, _ *mcv1.McKube, n *v1alpha1.RTNode) { n.OwnerReferences[0].UID = "an-earlier-node" }),
		"not-placed": running(func(_ *corev1.Pod, _ *mcv1.McKube, n *v1alpha1.RTNode) {
			n.Spec, n.Status.Servers = v1alpha1.RTNodeSpec{}, nil
		}),
		"agent-error": running(func(_ *corev1.Pod, _ *mcv1.McKube, n *v1alpha1.RTNode) {
			n.Status.Servers[0].Error = "writing cpu.rt_runtime_us: invalid argument"
		}),
		"moved": running(func(_ *corev1.Pod, m *mcv1.McKube, n *v1alpha1.RTNode) {
			n.Spec.Servers[0].Cores, n.Status.Servers[0].Cores = []int32{1}, []int32{1}
			m.Status.Conditions = []metav1.Condition{{Type: mcv1.ConditionPreempted, Status: metav1.ConditionTrue, Message: "core 0 was preferred by the more critical car/steer"}}
		}),
		"no-mckube": {statetest.Pod("car", "brake", "brake-1", "app")},
		"no-claim":  {statetest.Pod("car", "brake", "brake-1", "app"), statetest.McKube("car", "brake", "brake", "High", 20, 40)},
	}
	pending := func(criticality mcv1.Criticality, lowMs, highMs int64, more ...runtime.Object) []runtime.Object {
		p, m, template := brake(criticality, lowMs, highMs)
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes are available: cannot allocate all claims"}}
		return append([]runtime.Object{p, m, template, statetest.Claim(p, "brake-app", "app", "", 0, 0)}, more...)
	}
	all["no-core-fits"] = pending("High", 40, 50, cluster()...)
	all["no-core-fits-low"] = pending("Low", 40, 50, cluster()...)
	all["core-free"] = pending("High", 10, 20, cluster()...)
	all["no-cores"] = pending("High", 40, 50)
	all["invalid"] = pending("High", 40, 50)
	all["invalid"][1].(*mcv1.McKube).Spec.RTSettings.RuntimeHi = 99_000
	all["no-template"] = slices.Delete(pending("High", 40, 50, cluster()...), 2, 4)
	all["yields"] = pending("Low", 10, 10, cluster()...)
	all["yields"][0].(*corev1.Pod).Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: mcv1.GateYield}}
	steer, _, _ := brake("High", 1, 1)
	steer.Name, steer.UID = "steer", "steer-1"
	plan, err := state.Preemption{Node: "node-a", Core: 0, Victims: nil, Deadline: metav1.NewTime(statetest.Birth.Add(time.Minute))}.Encode()
	if err != nil {
		panic(err)
	}
	steer.Annotations = map[string]string{mcv1.AnnotationPreempting: plan}
	all["yields"] = append(all["yields"], steer)
	all["making-room"] = pending("High", 40, 50, cluster()...)
	plan, err = state.Preemption{Node: "node-a", Core: 0, Victims: []types.UID{"video-1"}, Waits: "a PodDisruptionBudget allows no eviction of car/video", Deadline: metav1.NewTime(statetest.Birth.Add(time.Minute))}.Encode()
	if err != nil {
		panic(err)
	}
	all["making-room"][0].(*corev1.Pod).Annotations = map[string]string{mcv1.AnnotationPreempting: plan}
	all["two-containers"] = twoContainers()
	all["adoption"] = adoption()
	return all
}

// twoContainers each find a core, but on no node both.
func twoContainers() []runtime.Object {
	p := statetest.Pod("car", "brake", "brake-1", "app", "side")
	out := []runtime.Object{p}
	for _, c := range []string{"app", "side"} {
		m := statetest.McKube("car", c, "brake", "High", 50, 60)
		m.Spec.Container = c
		template, err := rtdra.Template(m, state.DefaultGranularity)
		if err != nil {
			panic(err)
		}
		statetest.WithClaim(p, c, "brake-"+c)
		p.Spec.ResourceClaims[len(p.Spec.ResourceClaims)-1].ResourceClaimTemplateName = &template.Name
		out = append(out, m, template, statetest.Claim(p, "brake-"+c, c, "", 0, 0))
	}
	for _, name := range []string{"node-a", "node-b"} {
		n := statetest.Node(name, types.UID(name))
		out = append(out, n, statetest.Slice(n, statetest.Cores(1)...))
	}
	return out
}

// adoption: the McKube came after the pod, and no core of its node takes it.
func adoption() []runtime.Object {
	p := statetest.On(statetest.Pod("car", "brake", "brake-1", "app"), "node-a")
	return append(cluster(), p, statetest.McKube("car", "brake", "brake", "High", 40, 50))
}

func TestExplanationsReadAsTheGoldenFiles(t *testing.T) {
	t.Parallel()
	for name, objects := range scenarios() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			explanation, err := explain.Pod(statetest.Build(objects...), "car", "brake")
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			if err := explanation.Text(&got); err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join("testdata", name+".txt"), got.Bytes())
		})
	}
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
	}
}

func TestJSONHasTheNumbers(t *testing.T) {
	t.Parallel()
	explanation, err := explain.Pod(statetest.Build(scenarios()["no-core-fits"]...), "car", "brake")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := explanation.JSON(&out); err != nil {
		t.Fatal(err)
	}
	golden(t, filepath.Join("testdata", "no-core-fits.json"), out.Bytes())
	var got explain.Explanation
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(got.Gates, func(g state.Gate) bool { return g.Name == state.GateCore })
	if at < 0 || got.Ready || got.Reason != state.ReasonNoCoreFits || got.Gates[at].Numbers[0].Need != rt.PPM(501_000) {
		t.Errorf("explanation is %+v", got)
	}
}

func TestThereIsNoSuchPod(t *testing.T) {
	t.Parallel()
	if _, err := explain.Pod(statetest.Build(), "car", "brake"); err == nil || err.Error() != `pod car/brake not found` {
		t.Errorf("error is %v", err)
	}
}

// What is read page by page from an API is what is built from the objects.
func TestReadBuildsTheStateFromTheAPI(t *testing.T) {
	t.Parallel()
	objects := scenarios()["no-core-fits"]
	scheme, err := explain.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithRuntimeObjects(objects...).Build()
	snapshot, err := explain.Read(t.Context(), c, state.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := explain.Pod(snapshot, "car", "brake")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := got.Text(&out); err != nil {
		t.Fatal(err)
	}
	golden(t, filepath.Join("testdata", "no-core-fits.txt"), out.Bytes())
}

func TestReadingSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	scheme, err := explain.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	for want, cause := range map[string]error{
		"the cluster does not know them; is Mainspring installed there?": &meta.NoKindMatchError{},
		"reading McKubes: no route":                                      errors.New("no route"),
	} {
		c := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
			List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
				if _, ok := list.(*mcv1.McKubeList); ok {
					return cause
				}
				return nil
			},
		}).Build()
		if _, err := explain.Read(t.Context(), c, state.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
}

// The newest come first, whichever field their authors wrote the time in; those of other pods are left out, and equal ones are told once.
func TestTheLatestEventsOfThePodAreTold(t *testing.T) {
	t.Parallel()
	scheme, err := explain.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	event := func(name string, uid types.UID, minute int) *corev1.Event {
		return &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "car", Name: name}, InvolvedObject: corev1.ObjectReference{UID: uid}, Type: "Warning", Reason: "FailedScheduling",
			Message: name, Source: corev1.EventSource{Component: "default-scheduler"}, LastTimestamp: metav1.NewTime(statetest.Birth.Add(time.Duration(minute) * time.Minute)),
		}
	}
	newest := event("no node tolerates it", "brake-1", 0)
	newest.ReportingController, newest.EventTime = "karpenter", metav1.NewMicroTime(statetest.Birth.Add(time.Hour))
	objects := []client.Object{newest, event("of another", "brake-0", 59)}
	for i := range 6 {
		objects = append(objects, event(fmt.Sprintf("event %d", i), "brake-1", i))
	}
	again := event("event 4", "brake-1", 6)
	again.Name = "event 4, told again"
	objects = append(objects, again)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&corev1.Event{}, "involvedObject.uid", func(o client.Object) []string { return []string{string(o.(*corev1.Event).InvolvedObject.UID)} }).Build()
	explanation, err := explain.Pod(statetest.Build(scenarios()["no-cores"]...), "car", "brake")
	if err != nil {
		t.Fatal(err)
	}
	if err := explanation.AddEvents(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := explanation.Text(&out); err != nil {
		t.Fatal(err)
	}
	golden(t, filepath.Join("testdata", "events.txt"), out.Bytes())
}
