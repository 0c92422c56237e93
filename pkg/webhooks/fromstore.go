package webhooks

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// FromStore answers from the state cache; clock tells which preemptions are over.
func FromStore(store *state.Store, clock clock.PassiveClock) Cluster {
	return fromStore{store, clock}
}

type fromStore struct {
	*state.Store
	clock clock.PassiveClock
}

func (s fromStore) McKubesFor(pod *corev1.Pod) []*mcv1.McKube { return s.Snapshot().McKubesFor(pod) }

func (s fromStore) McKubesIn(namespace string) []*mcv1.McKube {
	return s.Snapshot().McKubesIn(namespace)
}

// PodsFor finds the pods of a McKube that the cache may not know yet: the one of its name, those that it
// is known to govern, and among those of other McKubes the ones that it would govern too. They are
// skeletons: what the webhooks ask of a pod is kept by the cache, not the pod.
func (s fromStore) PodsFor(m *mcv1.McKube) []*corev1.Pod {
	snapshot := s.Snapshot()
	found := map[types.UID]*corev1.Pod{}
	add := func(views ...*state.PodView) {
		for _, v := range views {
			if pod := skeleton(v); !v.Deleting && mcv1.MatchPod(m, pod) {
				found[v.UID] = pod
			}
		}
	}
	if named, ok := snapshot.PodNamed(m.Namespace, m.Spec.Podname); ok {
		add(named)
	}
	add(snapshot.PodsFor(m)...)
	for _, other := range snapshot.McKubesIn(m.Namespace) {
		add(snapshot.PodsFor(other)...)
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
}

func skeleton(v *state.PodView) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v.Namespace, Name: v.Name, UID: v.UID, Labels: v.Labels}}
	for _, name := range v.Containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name})
	}
	for _, name := range v.Sidecars {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{
			Name: name, RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
		})
	}
	return pod
}

func (s fromStore) Preempting() (rt.Criticality, bool) {
	highest, any := rt.Low, false
	for _, p := range s.Snapshot().Preemptions() {
		if p.InForce(s.clock.Now()) {
			highest, any = max(highest, p.Criticality), true
		}
	}
	return highest, any
}
