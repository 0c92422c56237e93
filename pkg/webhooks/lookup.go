package webhooks

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

const (
	// lookupTimeout bounds the question to the API server, within the timeout of the webhook itself.
	lookupTimeout = 2 * time.Second
	// lookupLimit is how many McKubes of a namespace are read at most. Beyond it the cache decides, and a
	// pod whose McKube it has not seen is adopted where it runs.
	lookupLimit = 1000
)

// governing are the McKubes of a pod that is being created. A client that creates a McKube and its pod at once outruns
// the cache by milliseconds, so where the cache leaves a container without one, the webhook asks the API server. Only
// real-time pods come here, so that no other waits for it.
func (h Handlers) governing(ctx context.Context, pod *corev1.Pod) ([]*mcv1.McKube, error) {
	known := h.Cluster.McKubesFor(pod)
	if h.Live == nil || !leavesOut(known, pod) {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	list := &mcv1.McKubeList{}
	if err := h.Live.List(ctx, list, client.InNamespace(pod.Namespace), client.Limit(lookupLimit)); err != nil {
		return nil, fmt.Errorf("looking for the McKubes of namespace %s: %w", pod.Namespace, err)
	}
	for i := range list.Items {
		m := &list.Items[i]
		if m.DeletionTimestamp == nil && mcv1.MatchPod(m, pod) && !slices.ContainsFunc(known, func(k *mcv1.McKube) bool { return k.Name == m.Name }) {
			known = append(known, m)
		}
	}
	slices.SortStableFunc(known, func(a, b *mcv1.McKube) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return known, nil
}

// leavesOut tells whether a container of the pod is governed by none of the McKubes.
func leavesOut(list []*mcv1.McKube, pod *corev1.Pod) bool {
	governed := map[string]bool{}
	for _, m := range list {
		if container, err := mcv1.ContainerOf(m, pod); err == nil {
			governed[container] = true
		}
	}
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return !governed[c.Name] })
}
