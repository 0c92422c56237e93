package rtruntime

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

func (c *mckubes) addFinalizer(ctx context.Context, m *mcv1.McKube) error {
	with := m.DeepCopy()
	controllerutil.AddFinalizer(with, mcv1.Finalizer)
	if err := c.Client.Patch(ctx, with, client.MergeFromWithOptions(m, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("adding the finalizer of McKube %s: %w", client.ObjectKeyFromObject(m), err)
	}
	return nil
}

// finalize makes the containers of a McKube that is being deleted ordinary ones, and lets it go. From the
// deletion on it governs nothing, so the loop over nodes takes them off their cores by itself; this
// waits for that before it gives back the bandwidth that was held for them.
func (c *mckubes) finalize(ctx context.Context, s *state.Snapshot, m *mcv1.McKube) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(m, mcv1.Finalizer) {
		return reconcile.Result{}, nil
	}
	pods, err := c.matching(ctx, m)
	if err != nil {
		return reconcile.Result{}, err
	}
	for i := range pods {
		waits, err := c.release(ctx, s, m, &pods[i])
		if err != nil || waits {
			return reconcile.Result{RequeueAfter: soon}, err
		}
	}
	without := m.DeepCopy()
	controllerutil.RemoveFinalizer(without, mcv1.Finalizer)
	err = c.Client.Patch(ctx, without, client.MergeFromWithOptions(m, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("removing the finalizer of McKube %s: %w", client.ObjectKeyFromObject(m), err)
	}
	return reconcile.Result{}, nil
}

func (c *mckubes) matching(ctx context.Context, m *mcv1.McKube) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := c.Client.List(ctx, list, client.InNamespace(m.Namespace)); err != nil {
		return nil, fmt.Errorf("listing pods of namespace %s: %w", m.Namespace, err)
	}
	var out []corev1.Pod
	for _, pod := range list.Items {
		if mcv1.MatchPod(m, &pod) {
			out = append(out, pod)
		}
	}
	return out, nil
}

// release makes one container an ordinary one. It waits while the RTNode spec still tells the node to run the container
// as a server that no McKube governs.
func (c *mckubes) release(ctx context.Context, s *state.Snapshot, m *mcv1.McKube, pod *corev1.Pod) (waits bool, err error) {
	container, err := mcv1.ContainerOf(m, pod)
	if err != nil {
		return false, nil //nolint:nilerr // it never governed anything of this pod
	}
	view, ok := s.Pod(pod.UID)
	if !ok {
		return false, nil
	}
	if governedBy(view, container) {
		return false, nil // by a McKube that comes after this one
	}
	if node, ok := s.NodeView(view.NodeName); ok {
		if server, ok := node.Server(rtdra.ServerID(pod.UID, container)); ok && server.Spec != nil {
			return true, nil
		}
	}
	if err := c.letGoHeld(ctx, pod, container); err != nil {
		return false, err
	}
	changed, err := c.annotatePod(ctx, view, annotationsOf(s, view))
	if changed && view.NodeName != "" && !view.Finished() {
		c.publish(events.Released(pod, string(pod.UID), m.Name))
	}
	return false, err
}

func governedBy(pod *state.PodView, container string) bool {
	for _, g := range pod.Governed {
		if g.Container == container {
			return true
		}
	}
	return false
}

func (c *mckubes) letGoHeld(ctx context.Context, pod *corev1.Pod, container string) error {
	held, err := c.heldClaims(ctx, pod.Namespace, pod.UID)
	if err != nil {
		return err
	}
	for i := range held {
		if held[i].Annotations[annotationPodClaim] != rtdra.ClaimName(container) {
			continue
		}
		if err := c.letGo(ctx, &held[i]); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}
