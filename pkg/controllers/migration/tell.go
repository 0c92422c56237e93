package migration

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// about is what an Event is about: a pod, or the McKube of one.
type about struct {
	runtime.Object
	uid, pod string
}

// tell makes an Event for the pod and for each McKube that governs it.
func (m *migrate) tell(pod *corev1.Pod, made func(on about) events.Event) {
	name := pod.Namespace + "/" + pod.Name
	list := []events.Event{made(about{pod, string(pod.UID), name})}
	if view, ok := m.Store.Snapshot().Pod(pod.UID); ok {
		for _, g := range view.Governed {
			list = append(list, made(about{g.McKube, string(g.McKube.UID) + string(pod.UID), name}))
		}
	}
	m.Recorder.Publish(list...)
}

// count adds an action that this step ends to the counters.
func count(r rules.Result) rules.Result {
	if r.Outcome.Over() {
		metrics.Migrations.WithLabelValues(metrics.StrategyRestart, string(r.Outcome)).Inc()
	}
	return r
}
