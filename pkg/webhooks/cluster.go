package webhooks

import (
	corev1 "k8s.io/api/core/v1"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// Cluster is what the webhooks know of the cluster. McKubes that are being deleted are not in it.
type Cluster interface {
	// Synced is nil, or says what is still missing for answers.
	Synced() error
	// McKubesFor are those that govern pod, oldest first. The pod may be one that does not exist yet.
	McKubesFor(pod *corev1.Pod) []*mcv1.McKube
	// McKubesIn are all of a namespace, oldest first.
	McKubesIn(namespace string) []*mcv1.McKube
	// PodsFor are the pods that m governs or, when it does not exist yet, would: name, labels, containers.
	PodsFor(m *mcv1.McKube) []*corev1.Pod
	// Preempting is the highest criticality of pods for which room is being made now; false for none.
	Preempting() (rt.Criticality, bool)
}
