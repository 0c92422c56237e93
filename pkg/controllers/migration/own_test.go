package migration_test

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
)

// own shows of the API server what is the town's, as if there was nothing else: towns stand side by side on one.
func (w *town) own(api client.WithWatch) client.WithWatch {
	return interceptor.NewClient(api, interceptor.Funcs{
		List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			switch list.(type) {
			case *corev1.NodeList, *resourcev1.ResourceSliceList, *v1alpha1.RTNodeList, *v1alpha1.RTActionList, *v1alpha1.NodeCheckpointList:
				if err := api.List(ctx, list, opts...); err != nil {
					return err
				}
				return w.sift(list)
			}
			return api.List(ctx, list, append(opts, client.InNamespace(w.namespace))...)
		},
	})
}

// sift leaves of a list what is the town's.
func (w *town) sift(list client.ObjectList) error {
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	var ours []runtime.Object
	for _, item := range items {
		if !w.elsewhere(item.(client.Object)) {
			ours = append(ours, item)
		}
	}
	return meta.SetList(list, ours)
}

// elsewhere tells whether what has no namespace is of another town.
func (w *town) elsewhere(o client.Object) bool {
	switch o := o.(type) {
	case *v1alpha1.RTAction:
		return len(o.Spec.Pods) == 0 || o.Spec.Pods[0].Namespace != w.namespace
	case *v1alpha1.NodeCheckpoint:
		return o.Spec.PodNamespace != w.namespace
	}
	return !strings.HasPrefix(o.GetName(), w.namespace+"-")
}

// leave takes away what other towns would have to look through.
func (w *town) leave() {
	w.Helper()
	ctx := context.Background() // that of the test is over
	// Nothing reads of this town any more, so nothing has to wait until a cache knows that it is gone.
	live := apiserver.Client(w, apiserver.Scheme(w))
	for _, list := range []client.ObjectList{
		&v1alpha1.RTActionList{}, &v1alpha1.NodeCheckpointList{}, &v1alpha1.RTNodeList{}, &resourcev1.ResourceSliceList{}, &corev1.NodeList{},
	} {
		w.must(w.api.List(ctx, list))
		w.must(meta.EachListItem(list, func(item runtime.Object) error {
			o := item.(client.Object)
			if len(o.GetFinalizers()) > 0 {
				o.SetFinalizers(nil)
				if err := live.Update(ctx, o); client.IgnoreNotFound(err) != nil {
					return err
				}
			}
			return client.IgnoreNotFound(live.Delete(ctx, o))
		}))
	}
}
