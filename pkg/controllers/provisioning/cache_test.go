package provisioning_test

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// look fills the caches with what the API server has.
func (p *process) look() error {
	now := map[types.UID]client.Object{}
	for _, list := range []client.ObjectList{
		&karpv1.NodePoolList{}, &karpv1.NodeClaimList{}, &corev1.NodeList{}, &corev1.PodList{}, &resourcev1.ResourceSliceList{}, &mcv1.McKubeList{}, &resourcev1.ResourceClaimList{}, &v1alpha1.RTNodeList{},
	} {
		if err := p.api.List(p.ctx, list); err != nil {
			return err
		}
		for _, o := range items(list) {
			now[o.GetUID()] = o
			if err := p.show(o); err != nil {
				return err
			}
		}
	}
	for uid, o := range p.seen {
		if now[uid] == nil {
			p.hide(o)
		}
	}
	p.seen = now
	return nil
}

func (p *process) show(o client.Object) error {
	switch o := o.(type) {
	case *karpv1.NodeClaim:
		p.cluster.UpdateNodeClaim(o)
		return nil
	case *karpv1.NodePool:
		return nil
	case *resourcev1.ResourceClaim:
		if _, err := p.devices.Reconcile(p.ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}); err != nil {
			return err
		}
	case *corev1.Node:
		if err := p.cluster.UpdateNode(p.ctx, o); err != nil {
			return err
		}
	case *corev1.Pod:
		if err := p.cluster.UpdatePod(p.ctx, o); err != nil {
			return err
		}
	}
	return p.store.Update(o)
}

func (p *process) hide(o client.Object) {
	switch o := o.(type) {
	case *karpv1.NodeClaim:
		p.cluster.DeleteNodeClaim(o.Name)
	case *karpv1.NodePool:
	case *corev1.Node:
		p.cluster.DeleteNode(o.Name)
		p.must(p.store.Delete(o))
	default:
		p.must(p.store.Delete(o))
	}
}

func items(list client.ObjectList) []client.Object {
	var out []client.Object
	_ = meta.EachListItem(list, func(o runtime.Object) error { // the function never fails
		out = append(out, o.(client.Object))
		return nil
	})
	return out
}
