package migration

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/events"
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

// outcome is what became of a migration, in people's words.
func outcome(p rules.Phase, unwanted bool, progress map[string]string) v1alpha1.MigrationPhase {
	switch {
	case p == rules.Succeeded && progress[progressStateless] != "":
		return v1alpha1.MigrationSucceededWithoutState
	case p == rules.Succeeded:
		return v1alpha1.MigrationSucceeded
	case p == rules.RolledBack && unwanted, p == rules.Withdrawn:
		return v1alpha1.MigrationAborted
	case p == rules.RolledBack:
		return v1alpha1.MigrationRolledBack
	case p == rules.Refused, p == rules.Expired:
		return v1alpha1.MigrationRefused
	}
	return v1alpha1.MigrationFailed
}
