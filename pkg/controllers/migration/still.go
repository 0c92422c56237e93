package migration

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
)

// held returns why a pod is not moved: it is stopped for a NodeCheckpoint of another action, as of one whose rollback took longer than
// it had. Two actions that hold one pod would undo what the other does. It is empty if no NodeCheckpoint holds the pod. Only the API
// server may say that one does; for planning, the cache is enough.
func (d Dependencies) held(ctx context.Context, pod types.UID, own string, planned bool) (string, error) {
	from := []client.Reader{d.Client, d.API}
	if planned {
		from = from[:1]
	}
	name := ""
	for _, reader := range from {
		states := &v1alpha1.NodeCheckpointList{}
		if err := reader.List(ctx, states); err != nil {
			return "", fmt.Errorf("listing NodeCheckpoints: %w", err)
		}
		i := slices.IndexFunc(states.Items, func(nc v1alpha1.NodeCheckpoint) bool { return nc.Name != own && nc.Holds(pod) })
		if i < 0 {
			return "", nil
		}
		name = states.Items[i].Name
	}
	return fmt.Sprintf("the pod stands still for NodeCheckpoint %s, and what it has in memory may be nowhere else: nobody moves it before that is undone, or has gone on", name), nil
}

// arrested is why no way is looked for; nil: one may be.
func (d Dependencies) arrested(ctx context.Context, q question) (*refusal, error) {
	why, err := d.held(ctx, q.pod.UID, "", q.planned)
	if why == "" || err != nil {
		return nil, err
	}
	return &refusal{ReasonStandsStill, why}, nil
}

// still is that for an action that was admitted before.
func (m *migrate) still(ctx context.Context, task orchestration.Task, pod *corev1.Pod) (string, error) {
	return m.held(ctx, pod.UID, task.Object.Name, false)
}

// ofState tells whether a pod is made of the archives of a NodeCheckpoint; empty: of any.
func ofState(pod *corev1.Pod, nc types.UID) bool {
	prefix := archived
	if nc != "" {
		prefix += string(nc) + ":"
	}
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return strings.HasPrefix(c.Image, prefix) })
}
