package observe

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// withoutManagedFields drops what nobody here reads and what is a third of every object.
func withoutManagedFields(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

func (r *Recorder) claimHandler() cache.ResourceEventHandler {
	set := func(obj any) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return
		}
		// An object the API server accepted always decodes; one that does not is a newer API and is left out.
		if c, err := claimOf(u); err == nil {
			r.store.setClaim(c, r.clock.Now())
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, obj any) { set(obj) },
		DeleteFunc: func(obj any) {
			if u, ok := last[*unstructured.Unstructured](obj); ok {
				r.store.dropClaim(u.GetName(), r.clock.Now())
			}
		},
	}
}

func (r *Recorder) rtNodeHandler() cache.ResourceEventHandler {
	set := func(obj any) {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			if n, err := rtNodeOf(u); err == nil {
				r.store.setRTNode(n)
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, obj any) { set(obj) },
		DeleteFunc: func(obj any) {
			if u, ok := last[*unstructured.Unstructured](obj); ok {
				r.store.dropRTNode(u.GetName())
			}
		},
	}
}

func (r *Recorder) mckubeHandler() cache.ResourceEventHandler {
	set := func(obj any) {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			if m, err := mckubeOf(u); err == nil {
				r.store.setMcKube(m)
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, obj any) { set(obj) },
		DeleteFunc: func(obj any) {
			if u, ok := last[*unstructured.Unstructured](obj); ok {
				r.store.dropMcKube(types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()})
			}
		},
	}
}

func (r *Recorder) nodeHandler() cache.ResourceEventHandler {
	set := func(obj any) {
		if n, ok := obj.(*corev1.Node); ok {
			r.store.setNode(n, r.clock.Now())
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, obj any) { set(obj) },
		DeleteFunc: func(obj any) {
			if n, ok := last[*corev1.Node](obj); ok {
				r.store.dropNode(n.Name)
			}
		},
	}
}

func (r *Recorder) podHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if p, ok := obj.(*corev1.Pod); ok {
				r.store.setPod(p)
				r.onPod(nil, p)
			}
		},
		UpdateFunc: func(was, obj any) {
			old, okOld := was.(*corev1.Pod)
			if p, ok := obj.(*corev1.Pod); ok && okOld {
				r.replacePod(old.UID, p)
				r.onPod(old, p)
			}
		},
		DeleteFunc: func(obj any) {
			if p, ok := last[*corev1.Pod](obj); ok {
				r.store.dropPod(p.UID)
				r.onPod(p, nil)
			}
		},
	}
}

// replacePod stores a pod that may have taken the name of an earlier one while the watch was broken.
func (r *Recorder) replacePod(old types.UID, p *corev1.Pod) {
	if old != p.UID {
		r.store.dropPod(old)
	}
	r.store.setPod(p)
}

func (r *Recorder) eventHandler() cache.ResourceEventHandler {
	set := func(obj any) {
		if e, ok := obj.(*corev1.Event); ok {
			r.store.addEvent(e)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: set, UpdateFunc: func(_, obj any) { set(obj) }}
}

// last is the object of a deletion, also when the watch missed it.
func last[T any](obj any) (T, bool) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	t, ok := obj.(T)
	return t, ok
}
