package simulated

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	kwokapi "sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// ImageDrifted is the reason of a NodeClaim whose node class names another machine image than the
// one it was launched with.
const ImageDrifted cloudprovider.DriftReason = "ImageDrifted"

// IsDrifted compares annotation mckube.io/image of the node class with that of the NodeClaim. A node
// class that names no image, or is gone, drifts nothing.
func (p *Provider) IsDrifted(ctx context.Context, claim *karpv1.NodeClaim) (cloudprovider.DriftReason, error) {
	nodeClass := &kwokapi.KWOKNodeClass{}
	if err := p.client.Get(ctx, types.NamespacedName{Name: claim.Spec.NodeClassRef.Name}, nodeClass); err != nil {
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "", fmt.Errorf("resolving node class: %w", err)
	}
	if want := nodeClass.Annotations[v1alpha1.AnnotationImage]; want != "" && want != claim.Annotations[v1alpha1.AnnotationImage] {
		return ImageDrifted, nil
	}
	return "", nil
}
