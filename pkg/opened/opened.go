// Package opened gives up nodes that were opened for actions which want them no longer.
package opened

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// Discard deletes a NodeClaim that nobody needs any longer; left is false then. Where pods run on its node by now that would have to go elsewhere it is
// disowned: to close it would disrupt them, which is for Karpenter to do, under budgets. The reader asks the API server: a cache may not show yet that
// the machine has joined, or who has come.
func Discard(ctx context.Context, c client.Client, reader client.Reader, claim *karpv1.NodeClaim) (left bool, err error) {
	latest := &karpv1.NodeClaim{}
	err = reader.Get(ctx, client.ObjectKeyFromObject(claim), latest)
	switch {
	case apierrors.IsNotFound(err), err == nil && latest.UID != claim.UID:
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading NodeClaim %s: %w", claim.Name, err)
	}
	busy, err := used(ctx, reader, latest)
	if err != nil {
		return false, err
	}
	if busy {
		return true, disown(ctx, c, latest)
	}
	if err := c.Delete(ctx, claim.DeepCopy(), client.Preconditions{UID: &claim.UID}); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("deleting NodeClaim %s: %w", claim.Name, err)
	}
	return false, nil
}

// used tells whether pods that would have to go elsewhere are on the node of a NodeClaim.
func used(ctx context.Context, from client.Reader, claim *karpv1.NodeClaim) (bool, error) {
	if claim.Status.NodeName == "" {
		return false, nil
	}
	pods := &corev1.PodList{}
	if err := from.List(ctx, pods, client.MatchingFields{"spec.nodeName": claim.Status.NodeName}); err != nil {
		return false, fmt.Errorf("listing the pods of node %s: %w", claim.Status.NodeName, err)
	}
	return slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return podutils.IsReschedulable(&pod) }), nil
}

// disown has a NodeClaim and its node be as any other. The NodeClaim comes last: by its annotation it is known that this is not done yet.
func disown(ctx context.Context, c client.Client, claim *karpv1.NodeClaim) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: claim.Status.NodeName}}
	for _, o := range []client.Object{node, claim.DeepCopy()} {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+v1alpha1.AnnotationAction+`":null}}}`))
		if err := c.Patch(ctx, o, patch); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("taking annotation %s off %T %s: %w", v1alpha1.AnnotationAction, o, o.GetName(), err)
		}
	}
	return nil
}
