package resourcepressure_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/resourcepressure"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/policy"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
	"github.com/mainspring-rt/mainspring/pkg/usage"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

// stage is an API server with nodes of 10 cores and 10Gi. The test measures, and says what the scheduler would do.
type stage struct {
	*testing.T
	api       client.WithWatch
	clock     *clocktesting.FakeClock
	store     *state.Store
	namespace string
	options   resourcepressure.Options
	told      []string
	// percent of CPU and memory of each node; nodes that are not in it are unknown. failing is the source's error.
	cpu, memory map[string]int
	failing     error
	latest      *usage.Latest
	stuck       bool // the readings' time stands still
	at          time.Time
	// refuses are "pod>node" that the scheduler would not place.
	refuses map[string]bool
}

func newStage(t *testing.T, mode resourcepressure.Mode) *stage {
	t.Helper()
	s := &stage{T: t, api: apiserver.Client(t, apiserver.Scheme(t)), clock: clocktesting.NewFakeClock(time.Now().Truncate(time.Second)), store: state.New(state.Options{}),
		options: resourcepressure.Defaults(), cpu: map[string]int{}, memory: map[string]int{}, refuses: map[string]bool{}}
	s.options.Mode, s.latest = mode, usage.NewLatest(s.clock, s.options.MaxAge())
	s.store.Complete()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "pressure-"}}
	s.must(s.api.Create(t.Context(), namespace))
	s.namespace = namespace.Name
	t.Cleanup(func() {
		apiserver.Empty(t, s.api, &v1alpha1.PodMigrationList{}, &v1alpha1.MigrationPolicyList{}, &v1alpha1.NodeCheckpointList{}, &corev1.PodList{}, &corev1.NodeList{})
	})
	return s
}

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// process is one that knows nothing of its predecessors. Without a client it has the stage's.
func (s *stage) process(api client.WithWatch) *resourcepressure.Controller {
	if api == nil {
		api = s.api
	}
	return resourcepressure.New(resourcepressure.Dependencies{
		Clock: s.clock, Client: api, API: api, Store: s.store, Source: source{s}, Latest: s.latest, Placement: scheduler{s}, Recorder: recorder{s}, Options: s.options,
		Policies: policy.NewJudge(policy.Options{Client: api, Secrets: api, Namespace: s.namespace, Clock: s.clock}),
	})
}

type source struct{ *stage }

func (source) Name() string { return usage.SourcePrometheus }

func (s source) Nodes(_ context.Context, nodes []*corev1.Node) (map[string]usage.Usage, error) {
	if s.failing != nil {
		return nil, s.failing
	}
	if !s.stuck {
		s.at = s.clock.Now()
	}
	out := map[string]usage.Usage{}
	for _, n := range nodes {
		if cpu, ok := s.cpu[n.Name]; ok {
			out[n.Name] = usage.Usage{CPU: usage.Value{Ratio: float64(cpu) / 100, At: s.at}, Memory: usage.Value{Ratio: float64(s.memory[n.Name]) / 100, At: s.at}}
		}
	}
	return out, nil
}

type scheduler struct{ *stage }

func (s scheduler) Refusal(_ context.Context, node string, pods []*corev1.Pod) (string, error) {
	for _, p := range pods {
		if s.refuses[p.Name+">"+node] {
			return "no room", nil
		}
	}
	return "", nil
}

type recorder struct{ *stage }

func (r recorder) Publish(list ...events.Event) {
	for _, e := range list {
		r.told = append(r.told, fmt.Sprintf("%s %s: %s", e.Object.(client.Object).GetName(), e.Reason, e.Message))
	}
}

// said are the Events with a reason.
func (s *stage) said(reason string) (out []string) {
	for _, line := range s.told {
		if strings.Contains(line, " "+reason+":") {
			out = append(out, line)
		}
	}
	return out
}

func (s *stage) node(name string, cpu, memory int) {
	s.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	s.must(s.api.Create(s.Context(), n))
	n.Spec.Taints = nil // of new nodes
	s.must(s.api.Update(s.Context(), n))
	all := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10"), corev1.ResourceMemory: resource.MustParse("10Gi")}
	n.Status = corev1.NodeStatus{Capacity: all, Allocatable: all, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}
	s.must(s.api.Status().Update(s.Context(), n))
	s.cpu[name], s.memory[name] = cpu, memory
}

// pod runs on a node, asks for so many cores, and is of a Deployment of its own name.
func (s *stage) pod(name, node string, cores string, change ...func(*corev1.Pod)) *corev1.Pod {
	s.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: types.UID(name), Controller: ptr.To(true)},
		}},
		Spec: corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: ptr.To(int64(0)), Containers: []corev1.Container{{
			Name: "app", Image: "none", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cores)}},
		}}},
	}
	for _, f := range change {
		f(p)
	}
	s.must(s.api.Create(s.Context(), p))
	p.Status.Phase = corev1.PodRunning
	s.must(s.api.Status().Update(s.Context(), p))
	return p
}

// mckube governs a pod.
func (s *stage) mckube(p *corev1.Pod, criticality mcv1.Criticality, change ...func(*mcv1.McKube)) {
	s.Helper()
	m := &mcv1.McKube{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: types.UID("mck-" + p.Name)}, Spec: mcv1.McKubeSpec{
		Podname: p.Name, Criticality: criticality, RTSettings: &mcv1.RTSettings{Period: 100_000, RuntimeLow: 10_000, RuntimeHi: 10_000},
	}}
	for _, f := range change {
		f(m)
	}
	s.must(s.store.Update(p))
	s.must(s.store.Update(m))
}

// looks has the process look, once in each interval.
func (s *stage) looks(c *resourcepressure.Controller, n int) {
	s.Helper()
	for range n {
		s.clock.Step(s.options.Interval)
		if _, err := c.Reconcile(s.Context()); err != nil {
			s.Fatal(err)
		}
	}
}

// migrations are "pod>node" of all PodMigrations.
func (s *stage) migrations() string {
	s.Helper()
	var out []string
	for _, m := range s.list() {
		out = append(out, m.Spec.PodName+">"+m.Spec.TargetNode)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (s *stage) list() []v1alpha1.PodMigration {
	s.Helper()
	list := &v1alpha1.PodMigrationList{}
	s.must(s.api.List(s.Context(), list, client.InNamespace(s.namespace)))
	for _, m := range list.Items {
		if !slices.Equal(m.Finalizers, []string{v1alpha1.FinalizerMigration}) {
			s.Errorf("PodMigration %s has finalizers %v: the controller must write it once more", m.Name, m.Finalizers)
		}
	}
	return list.Items
}

// read returns the node's condition; it is empty where the node has none.
func (s *stage) read(node string) corev1.NodeCondition {
	s.Helper()
	n := &corev1.Node{}
	s.must(s.api.Get(s.Context(), client.ObjectKey{Name: node}, n))
	for _, c := range n.Status.Conditions {
		if c.Type == resourcepressure.ConditionResourcePressure {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// condition is "status reason" of the node's.
func (s *stage) condition(node string) string {
	s.Helper()
	c := s.read(node)
	return strings.TrimSpace(string(c.Status) + " " + c.Reason)
}

func (s *stage) expect(what, got, want string) {
	s.Helper()
	if got != want {
		s.Errorf("%s: got %q, want %q\n%s", what, got, want, strings.Join(s.told, "\n"))
	}
}

// arrives has the pods of all PodMigrations run on their targets.
func (s *stage) arrives() {
	s.Helper()
	for _, m := range s.list() {
		if m.Status.Phase.Over() {
			continue
		}
		p := &corev1.Pod{}
		if err := s.api.Get(s.Context(), client.ObjectKey{Namespace: s.namespace, Name: m.Spec.PodName}, p); err == nil {
			s.must(s.api.Delete(s.Context(), p, client.GracePeriodSeconds(0)))
		}
		m.Status.Phase, m.Status.CompletionTime = v1alpha1.MigrationSucceeded, &metav1.MicroTime{Time: s.clock.Now()}
		s.must(s.api.Status().Update(s.Context(), &m))
	}
}

var errAway = &usage.Error{Source: usage.SourcePrometheus, Kind: usage.KindUnreachable, Err: errors.New("connection refused")}
