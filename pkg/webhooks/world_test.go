package webhooks_test

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

const granularity = 100

// world is a cluster as the cache would know it.
type world struct {
	unsynced   error
	mckubes    []*mcv1.McKube
	pods       []*corev1.Pod
	preempting *rt.Criticality
	live       client.Reader // what the API server knows already
	spared     []string
	migrations client.Reader
}

var errLists = errors.New("pods have not been listed")

func (w *world) Synced() error { return w.unsynced }

func (w *world) McKubesFor(pod *corev1.Pod) []*mcv1.McKube {
	return keep(w.mckubes, func(m *mcv1.McKube) bool { return mcv1.MatchPod(m, pod) })
}

func (w *world) McKubesIn(namespace string) []*mcv1.McKube {
	return keep(w.mckubes, func(m *mcv1.McKube) bool { return m.Namespace == namespace })
}

func (w *world) PodsFor(m *mcv1.McKube) []*corev1.Pod {
	return keep(w.pods, func(p *corev1.Pod) bool { return mcv1.MatchPod(m, p) })
}

func (w *world) Preempting() (rt.Criticality, bool) {
	if w.preempting == nil {
		return rt.Low, false
	}
	return *w.preempting, true
}

func keep[T any](all []T, wanted func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(x T) bool { return !wanted(x) })
}

// mckube gives pod "app" 1 to 2 ms in every 10.
func mckube(name string, options ...func(*mcv1.McKube)) *mcv1.McKube {
	m := &mcv1.McKube{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: mcv1.McKubeSpec{
			Podname: "app", Criticality: "High",
			RTSettings: &mcv1.RTSettings{Period: 10_000, RuntimeLow: 1_000, RuntimeHi: 2_000},
		},
	}
	for _, o := range options {
		o(m)
	}
	return m
}

func of(container string) func(*mcv1.McKube) {
	return func(m *mcv1.McKube) { m.Spec.Container = container }
}

func podname(name string) func(*mcv1.McKube) {
	return func(m *mcv1.McKube) { m.Spec.Podname = name }
}

func selecting(labels ...string) func(*mcv1.McKube) {
	return func(m *mcv1.McKube) {
		m.Spec.Podname, m.Spec.Selector = "", &metav1.LabelSelector{MatchLabels: pairs(labels)}
	}
}

func critical(c mcv1.Criticality) func(*mcv1.McKube) {
	return func(m *mcv1.McKube) { m.Spec.Criticality = c }
}

func onCores(list string) func(*mcv1.McKube) {
	return func(m *mcv1.McKube) { m.Spec.RTSettings.Core = ptr.To(list) }
}

func onNode(name string) func(*mcv1.McKube) {
	return func(m *mcv1.McKube) { m.Spec.Node = name }
}

func in(namespace string) func(*mcv1.McKube) {
	return func(m *mcv1.McKube) { m.Namespace = namespace }
}

func budget(period, low, hi int64) func(*mcv1.McKube) {
	return func(m *mcv1.McKube) {
		m.Spec.RTSettings.Period, m.Spec.RTSettings.RuntimeLow, m.Spec.RTSettings.RuntimeHi = period, low, hi
	}
}

func withoutSettings(m *mcv1.McKube) { m.Spec.RTSettings = nil }

// pod "app" with containers.
func pod(containers ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "app"}}
	for _, name := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name, Image: "app:1"})
	}
	return p
}

func labelled(p *corev1.Pod, labels ...string) *corev1.Pod {
	p.Labels = pairs(labels)
	return p
}

func annotated(p *corev1.Pod, annotations ...string) *corev1.Pod {
	p.Annotations = pairs(annotations)
	return p
}

func pairs(list []string) map[string]string {
	all := map[string]string{}
	for i := 0; i+1 < len(list); i += 2 {
		all[list[i]] = list[i+1]
	}
	return all
}
