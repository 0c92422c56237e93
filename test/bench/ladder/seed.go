package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
)

// seedEvery is how often the seed looks. Its own controller polls nodes every 10 s and is told of pods: this is to its
// advantage.
const seedEvery = time.Second

// seedRecovers is how long nobody must have overrun until the seed gives a high budget back.
const seedRecovers = 5 * time.Second

// seed is a small reconciler with the rules of the MC-Kube controller.
type seed struct {
	client   client.Client
	machines *catalogue.Catalogue
	books    map[string]*book
	misses   map[types.UID][]sampled // of a pod, since its window began
	overran  map[types.UID]sampled   // when a pod's overruns last became more
}

// sampled is a counter at a moment.
type sampled struct {
	at    time.Time
	count int64
}

func newSeed(c client.Client, machines *catalogue.Catalogue) *seed {
	return &seed{client: c, machines: machines, books: map[string]*book{}, misses: map[types.UID][]sampled{}, overran: map[types.UID]sampled{}}
}

// run looks until the context ends.
func (s *seed) run(ctx context.Context) {
	ticker := time.NewTicker(seedEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := s.look(ctx); err != nil && ctx.Err() == nil {
				fmt.Fprintf(os.Stderr, "seed: %v\n", err)
			}
		}
	}
}

// look places what is new on every node and taints those that are late.
func (s *seed) look(ctx context.Context) error {
	nodes, pods, mckubes := &corev1.NodeList{}, &corev1.PodList{}, &mcoperatorv1.McKubeList{}
	for _, list := range []client.ObjectList{nodes, pods, mckubes} {
		if err := s.client.List(ctx, list); err != nil {
			return fmt.Errorf("listing: %w", err)
		}
	}
	for i := range nodes.Items {
		if err := s.node(ctx, &nodes.Items[i], pods.Items, mckubes.Items); err != nil {
			return fmt.Errorf("node %s: %w", nodes.Items[i].Name, err)
		}
	}
	return nil
}

func (s *seed) node(ctx context.Context, node *corev1.Node, pods []corev1.Pod, mckubes []mcoperatorv1.McKube) error {
	machine, ok := s.machines.Lookup(node.Labels[corev1.LabelInstanceTypeStable])
	if !ok {
		return nil
	}
	b := s.books[node.Name]
	if b == nil {
		var cores []int32
		for _, c := range machine.RT.Cores() {
			cores = append(cores, int32(c.ID)) //nolint:gosec // small
		}
		b = newBook(cores)
		s.books[node.Name] = b
	}
	present, newcomers := map[types.UID]bool{}, []rtPod{}
	for i := range pods {
		p, ok := realtimePod(&pods[i], mckubes)
		if ok && pods[i].Spec.NodeName == node.Name && pods[i].DeletionTimestamp.IsZero() {
			present[p.uid] = true
			newcomers = append(newcomers, p)
		}
	}
	b.keep(present)
	var victims []rtPod
	for _, p := range newcomers {
		victims = append(victims, b.add(p)...)
	}
	current, err := s.rtNode(ctx, node)
	if err != nil {
		return err
	}
	victims = append(victims, s.escalate(b, current.Status, time.Now())...)
	for _, victim := range victims {
		if err := s.evict(ctx, victim); err != nil {
			return err
		}
	}
	if err := s.write(ctx, current, b.spec()); err != nil {
		return err
	}
	return s.taint(ctx, node, s.late(b, current.Status, time.Now()))
}

// escalate counts those who overrun with their high budgets, and returns those who are to be evicted for them.
func (s *seed) escalate(b *book, reported v1alpha1.RTNodeStatus, now time.Time) (victims []rtPod) {
	for _, server := range reported.Servers {
		last := s.overran[server.PodUID]
		if server.Overruns > last.count {
			last = sampled{at: now, count: server.Overruns}
			s.overran[server.PodUID] = last
		}
		victims = append(victims, b.raise(server.PodUID, now.Sub(last.at) < seedRecovers)...)
	}
	return victims
}

// realtimePod is a pod with what its McKube asks for.
func realtimePod(pod *corev1.Pod, mckubes []mcoperatorv1.McKube) (rtPod, bool) {
	for i := range mckubes {
		m := &mckubes[i]
		selector, err := metav1.LabelSelectorAsSelector(m.Spec.Selector)
		if err != nil || m.Namespace != pod.Namespace || m.Spec.Selector == nil || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		p := rtPod{
			uid: pod.UID, namespace: pod.Namespace, name: pod.Name, container: pod.Spec.Containers[0].Name, criticality: string(m.Spec.Criticality),
			period: m.Spec.RTSettings.Period, low: m.Spec.RTSettings.RuntimeLow, high: m.Spec.RTSettings.RuntimeHi,
		}
		if m.Spec.PressuredDeadlinesTotal != nil {
			p.pressuredTotal, p.pressured = *m.Spec.PressuredDeadlinesTotal, *m.Spec.PressuredDeadlinesPeriod
		}
		return p, true
	}
	return rtPod{}, false
}

func (s *seed) evict(ctx context.Context, p rtPod) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.name}}
	eviction := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.uid}}}
	err := s.client.SubResource("eviction").Create(ctx, pod, eviction)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) {
		return nil
	}
	return err
}

// rtNode is where the node's agent is told, and reports.
func (s *seed) rtNode(ctx context.Context, node *corev1.Node) (*v1alpha1.RTNode, error) {
	current := &v1alpha1.RTNode{}
	err := s.client.Get(ctx, client.ObjectKeyFromObject(node), current)
	if apierrors.IsNotFound(err) {
		current = &v1alpha1.RTNode{ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		}}
		err = s.client.Create(ctx, current)
	}
	return current, err
}

// write tells the node's agent.
func (s *seed) write(ctx context.Context, current *v1alpha1.RTNode, spec v1alpha1.RTNodeSpec) error {
	if apiequality.Semantic.DeepEqual(current.Spec, spec) {
		return nil
	}
	before := current.DeepCopy()
	current.Spec = spec
	return s.client.Patch(ctx, current, client.MergeFrom(before))
}

// late says that a pod of the node has missed as many deadlines as make its node pressured.
func (s *seed) late(b *book, reported v1alpha1.RTNodeStatus, now time.Time) bool {
	is := false
	for _, server := range reported.Servers {
		p, ok := b.pods[server.PodUID]
		if !ok || p.pressuredTotal == 0 {
			continue
		}
		window := append(s.misses[p.uid], sampled{at: now, count: server.Misses})
		for len(window) > 1 && now.Sub(window[0].at) > time.Duration(p.pressured)*time.Second {
			window = window[1:]
		}
		s.misses[p.uid] = window
		is = is || server.Misses-window[0].count >= int64(p.pressuredTotal)
	}
	return is
}

// taint keeps new pods off a node that is late, and takes that back.
func (s *seed) taint(ctx context.Context, node *corev1.Node, late bool) error {
	i := slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == mcoperatorv1.TaintPressure })
	if late == (i >= 0) {
		return nil
	}
	before := node.DeepCopy()
	if late {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: mcoperatorv1.TaintPressure, Effect: corev1.TaintEffectNoSchedule})
	} else {
		node.Spec.Taints = slices.Delete(node.Spec.Taints, i, i+1)
	}
	return s.client.Patch(ctx, node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}
