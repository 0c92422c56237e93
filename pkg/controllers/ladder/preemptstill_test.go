package ladder_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
)

// The memory of a pod frozen for a migration may exist nowhere else: no pod goes if one of them is frozen, and the executor
// calls the attempt off.
func TestNoPodIsEvictedWhileOneIsFrozen(t *testing.T) {
	e := newEviction(t)
	little := e.pod("little")
	nc := &v1alpha1.NodeCheckpoint{ObjectMeta: metav1.ObjectMeta{Name: e.namespace}, Spec: v1alpha1.NodeCheckpointSpec{
		PodNamespace: e.namespace, PodName: little.Name, PodUID: little.UID, Containers: []v1alpha1.CheckpointedContainer{{Name: "app"}},
		SourceNode: e.nodes[0], TargetNode: "elsewhere", Stage: v1alpha1.StageRestore, Expires: metav1.NewTime(e.clock.Now()),
	}}
	e.must(e.api.Create(t.Context(), nc))
	t.Cleanup(func() { apiserver.Empty(t, e.api, &v1alpha1.NodeCheckpointList{}) })
	e.is(e.step(rules.Running), "", true, "pod "+e.namespace+"/little may not be evicted yet: it stands still for NodeCheckpoint "+e.namespace)
	e.here("low", "little")
	nc.Status.Source = &v1alpha1.CheckpointSide{State: v1alpha1.CheckpointDiscarded}
	e.must(e.api.Status().Update(t.Context(), nc))
	e.is(e.step(rules.Running), "", false, "evicted pod "+e.namespace+"/low")
}
