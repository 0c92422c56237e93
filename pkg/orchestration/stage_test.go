package orchestration_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
)

// stage is an API server with pods and nodes, and the world that actions change.
type stage struct {
	testing.TB
	api       client.WithWatch
	clock     *clocktesting.FakeClock
	told      *told
	nodes     *nodes
	options   orchestration.Options
	unable    map[rules.Kind]bool
	faulty    bool
	processes int
	namespace string

	// has are the actions that have a pod or node in hand, by "Pod name" or "Node name"; done those that are through with it.
	has, done map[string][]string
	// effects are what executors did, in order.
	effects []string
	// looks is how often an executor has found that nothing happens.
	looks int
	// conduct is how an executor fares with a request, by its reason.
	conduct map[string]conduct
}

// conduct of an executor.
type conduct struct {
	// gives up after the first effect, hangs after it, or cannot undo it.
	givesUp, hangs, clings bool
	// failing says what steps fail with.
	failing error
}

func newStage(t testing.TB) *stage {
	t.Helper()
	api := apiserver.Near(t, apiserver.Scheme(t))
	s := &stage{
		TB: t, api: api, clock: clocktesting.NewFakeClock(time.Now().Truncate(time.Second)), told: &told{},
		nodes: &nodes{disrupted: map[string]string{}, allowed: map[string]int{}},
		has:   map[string][]string{}, done: map[string][]string{}, conduct: map[string]conduct{}, unable: map[rules.Kind]bool{},
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "stage-"}}
	s.must(api.Create(t.Context(), namespace))
	s.namespace = namespace.Name
	t.Cleanup(s.leave)
	return s
}

// leave takes away what has no namespace.
func (s *stage) leave() {
	s.Helper()
	apiserver.Empty(s, s.api, &v1alpha1.RTActionList{}, &corev1.PodList{}, &corev1.NodeList{}, &coordinationv1.LeaseList{})
}

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// nodes are what others do to nodes.
type nodes struct {
	disrupted map[string]string
	allowed   map[string]int
	invalid   map[string]string
}

func (n *nodes) Disrupted(node string) string { return n.disrupted[node] }

func (n *nodes) Allowed(context.Context) (map[string]orchestration.PoolAllowance, error) {
	out := map[string]orchestration.PoolAllowance{}
	for pool, allowed := range n.allowed {
		out[pool] = orchestration.PoolAllowance{Nodes: allowed, Invalid: n.invalid[pool]}
	}
	return out, nil
}

// told records Events.
type told struct{ list []events.Event }

func (t *told) Publish(list ...events.Event) { t.list = append(t.list, list...) }

// on are the reasons of the Events on an object of a name.
func (t *told) on(name string) []string {
	var out []string
	for _, e := range t.list {
		if o, ok := e.Object.(client.Object); ok && o.GetName() == name {
			out = append(out, e.Reason)
		}
	}
	return out
}

func (s *stage) node(name string) {
	s.Helper()
	s.must(s.api.Create(s.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

// pod runs and is ready.
func (s *stage) pod(name string) v1alpha1.ActionPod {
	s.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name, Labels: map[string]string{"app": name[:1]}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "none"}}},
	}
	s.must(s.api.Create(s.Context(), p))
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	s.must(s.api.Status().Update(s.Context(), p))
	return v1alpha1.ActionPod{Namespace: s.namespace, Name: name, UID: p.UID}
}

// budget is a PodDisruptionBudget for the pods whose names begin with a letter.
func (s *stage) budget(name, letter string, allowed int32) *policyv1.PodDisruptionBudget {
	s.Helper()
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": letter}},
		},
	}
	s.must(s.api.Create(s.Context(), b))
	s.allow(name, allowed)
	return b
}

func (s *stage) allow(name string, allowed int32) {
	s.Helper()
	b := &policyv1.PodDisruptionBudget{}
	s.must(s.api.Get(s.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, b))
	b.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: b.Generation, DisruptionsAllowed: allowed, CurrentHealthy: 1 + allowed, DesiredHealthy: 1, ExpectedPods: 1 + allowed,
	}
	s.must(s.api.Status().Update(s.Context(), b))
}

// request asks for something to be done to pods.
func (s *stage) request(kind rules.Kind, reason, node string, pods ...v1alpha1.ActionPod) orchestration.Request {
	return orchestration.Request{
		Kind: kind, Reason: reason, Cause: "cause/" + reason, Node: node, Pods: pods, Timeout: time.Minute,
		Beneficiary: v1alpha1.ActionBeneficiary{Kind: "McKube", Namespace: s.namespace, Name: "m-" + strings.ToLower(reason), Criticality: "Middle"},
	}
}

func (s *stage) submit(p *process, r orchestration.Request) orchestration.Ticket {
	s.Helper()
	t, err := p.queue.Submit(s.Context(), r)
	s.must(err)
	return t
}

// actions as the server has them.
func (s *stage) actions() []v1alpha1.RTAction {
	s.Helper()
	list := &v1alpha1.RTActionList{}
	s.must(s.api.List(s.Context(), list))
	slices.SortFunc(list.Items, func(a, b v1alpha1.RTAction) int { return strings.Compare(a.Spec.Reason, b.Spec.Reason) })
	return list.Items
}

// summary is "Reason Phase" of each action, and what those that wait wait for.
func (s *stage) summary() []string {
	s.Helper()
	var out []string
	for _, o := range s.actions() {
		text := o.Spec.Reason + " " + string(o.Status.Phase)
		if o.Status.WaitingFor != "" {
			text += " for " + o.Status.WaitingFor
		}
		out = append(out, text)
	}
	return out
}

func (s *stage) action(name string) *v1alpha1.RTAction {
	s.Helper()
	o := &v1alpha1.RTAction{}
	err := s.api.Get(s.Context(), client.ObjectKey{Name: name}, o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	s.must(err)
	return o
}

// consistent expects that of what is stored no two actions that run have the same pod.
func (s *stage) consistent() {
	s.Helper()
	by := map[string]string{}
	for _, o := range s.actions() {
		if !rules.Phase(o.Status.Phase).Holds() {
			continue
		}
		for _, p := range o.Spec.Pods {
			if other := by[p.Name]; other != "" {
				s.Errorf("%s and %s run with pod %s", other, o.Spec.Reason, p.Name)
			}
			by[p.Name] = o.Spec.Reason
		}
	}
}

// turns lets a process go on for a while.
func (s *stage) turns(p *process, n int) {
	s.Helper()
	for range n {
		if err := p.turn(); err != nil {
			s.Fatal(err)
		}
		s.clock.Step(time.Second)
	}
}

func (s *stage) is(want ...string) {
	s.Helper()
	if got := s.summary(); !slices.Equal(got, want) {
		s.Errorf("got  %q\nwant %q", got, want)
	}
}

// take makes sure that no other action has something in hand.
func (s *stage) take(what, action string, shared bool) {
	s.Helper()
	if others := slices.DeleteFunc(slices.Clone(s.has[what]), func(o string) bool { return o == action }); len(others) > 0 && !shared {
		s.Errorf("%s has %s in hand, which %v has", action, what, others)
	}
	if !slices.Contains(s.has[what], action) {
		s.has[what] = append(s.has[what], action)
	}
}

func (s *stage) drop(what, action string) {
	s.has[what] = slices.DeleteFunc(s.has[what], func(o string) bool { return o == action })
}

// ends expects every action to be over, as its outcome says, with nothing left in hand.
func (s *stage) ends() {
	s.Helper()
	for _, o := range s.actions() {
		phase := rules.Phase(o.Status.Phase)
		if !phase.Over() {
			s.Errorf("%s is %s for %s: %s", o.Spec.Reason, phase, o.Status.WaitingFor, o.Status.Message)
		}
		if done := slices.Contains(s.done["action"], o.Name); done != (phase == rules.Succeeded) {
			s.Errorf("%s is %s, done: %t", o.Spec.Reason, phase, done)
		}
	}
	for what, by := range s.has {
		if len(by) > 0 {
			s.Errorf("%s is still in the hands of %v", what, by)
		}
	}
	twice := map[string]bool{}
	for _, e := range s.effects {
		if strings.HasPrefix(e, "finish") && twice[e] {
			s.Errorf("twice: %s", e)
		}
		twice[e] = true
	}
}
