package checkpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

const (
	resource = "nodecheckpoints"
	// apiTimeout bounds one request.
	apiTimeout = 10 * time.Second
	// podAPI is the group of KEP-5823.
	podAPI = "/apis/checkpoint.k8s.io"
)

// Kube is the API of a keeper, by clients of two groups.
type Kube struct {
	// Core is v1, MCKube is ours.
	Core, MCKube rest.Interface
	// Node is this one's name, Manager under which name it writes.
	Node, Manager string
}

// Get implements API.
func (k Kube) Get(ctx context.Context, name string) (*v1alpha1.NodeCheckpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	out := &v1alpha1.NodeCheckpoint{}
	return out, k.MCKube.Get().Resource(resource).Name(name).Do(ctx).Into(out)
}

// Report implements API. It writes nothing but the one side, and to no other object of the name.
func (k Kube) Report(ctx context.Context, of Version, role Role, side v1alpha1.CheckpointSide) error {
	data, err := patchOf(of, role, side)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return k.MCKube.Patch(types.MergePatchType).Resource(resource).Name(of.Name).SubResource("status").
		Param("fieldManager", k.Manager).Body(data).Do(ctx).Error()
}

// patchOf replaces the side as a whole: a merge patch keeps what it does not name, so what is empty is named null.
func patchOf(of Version, role Role, side v1alpha1.CheckpointSide) ([]byte, error) {
	text, err := json.Marshal(side)
	if err != nil {
		return nil, fmt.Errorf("encoding the status: %w", err)
	}
	full := map[string]any{"message": nil, "pending": nil, "disturbance": nil, "address": nil, "certificate": nil, "archives": nil, "bytes": nil, "stoppedTime": nil, "progressTime": nil}
	if err := json.Unmarshal(text, &full); err != nil {
		return nil, fmt.Errorf("encoding the status: %w", err)
	}
	which := map[string]any{"uid": of.UID}
	if of.Resource != "" {
		which["resourceVersion"] = of.Resource
	}
	return json.Marshal(map[string]any{"metadata": which, "status": map[Role]any{role: full}})
}

// Copied implements API.
func (k Kube) Copied(ctx context.Context, namespace string, pod types.UID) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	list := &corev1.PodList{}
	if err := k.Core.Get().Namespace(namespace).Resource("pods").Do(ctx).Into(list); err != nil {
		return false, fmt.Errorf("listing the pods of namespace %s: %w", namespace, err)
	}
	return slices.ContainsFunc(list.Items, func(p corev1.Pod) bool {
		return p.Annotations[mcv1.AnnotationReplaces] == string(pod) && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
	}), nil
}

// Deleted implements API. It reads the pod's metadata alone.
func (k Kube) Deleted(ctx context.Context, pod Pod) (deleted, gone bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	text, err := k.Core.Get().Namespace(pod.Namespace).Resource("pods").
		Param("fieldSelector", fields.OneTermEqualSelector("metadata.name", pod.Name).String()).
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").Do(ctx).Raw()
	if err != nil {
		return false, false, fmt.Errorf("reading pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	list := &metav1.PartialObjectMetadataList{}
	if err := json.Unmarshal(text, list); err != nil {
		return false, false, fmt.Errorf("reading pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	for i := range list.Items {
		if list.Items[i].UID == pod.UID {
			return list.Items[i].DeletionTimestamp != nil, false, nil
		}
	}
	return true, true, nil
}

// Images implements API.
func (k Kube) Images(ctx context.Context) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	list := &corev1.PodList{}
	err := k.Core.Get().Resource("pods").Param("fieldSelector", fields.OneTermEqualSelector("spec.nodeName", k.Node).String()).Do(ctx).Into(list)
	if err != nil {
		return nil, fmt.Errorf("listing the node's pods: %w", err)
	}
	used := map[string]bool{}
	for _, pod := range list.Items {
		for _, c := range pod.Spec.Containers {
			used[c.Image] = true
		}
	}
	return used, nil
}

// PodAPI tells whether KEP-5823 is served.
func (k Kube) PodAPI(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	code := 0
	err := k.Core.Get().AbsPath(podAPI).Do(ctx).StatusCode(&code).Error()
	if code == 404 {
		return false, nil
	}
	return err == nil, err
}

// Watch is that of a Config. It watches the NodeCheckpoints of this node and no others.
func (k Kube) Watch(ctx context.Context, changed func(string)) (func(string) *v1alpha1.NodeCheckpoint, func() error, error) {
	told := func(obj any) {
		if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			changed(name)
		}
	}
	var stores []cache.Store
	var controllers []cache.Controller
	for _, field := range []string{"spec.sourceNode", "spec.targetNode"} {
		store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
			ListerWatcher: cache.NewListWatchFromClient(k.MCKube, resource, metav1.NamespaceAll, fields.OneTermEqualSelector(field, k.Node)),
			ObjectType:    &v1alpha1.NodeCheckpoint{},
			Handler:       cache.ResourceEventHandlerFuncs{AddFunc: told, UpdateFunc: func(_, obj any) { told(obj) }, DeleteFunc: told},
		})
		stores, controllers = append(stores, store), append(controllers, controller)
	}
	get := func(name string) *v1alpha1.NodeCheckpoint {
		for _, s := range stores {
			if obj, ok, err := s.GetByKey(name); err == nil && ok {
				if nc, ok := obj.(*v1alpha1.NodeCheckpoint); ok {
					return nc.DeepCopy()
				}
			}
		}
		return nil
	}
	group, running := errgroup.WithContext(ctx)
	for _, c := range controllers {
		group.Go(func() error { c.RunWithContext(running); return nil })
	}
	for _, c := range controllers {
		if !cache.WaitForCacheSync(running.Done(), c.HasSynced) {
			return nil, nil, running.Err()
		}
	}
	return get, group.Wait, nil
}
