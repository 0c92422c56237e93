package apiserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Near is Client for tests that read far more than they write: what is read comes from a cache, but never from before anything that was
// written through a Near client of this process. An API server takes milliseconds of a core for each read, and a test that kills a process
// before each of its writes makes hundreds of thousands of them.
func Near(t testing.TB, s *runtime.Scheme) client.WithWatch {
	t.Helper()
	live := Client(t, s)
	n, err := nearFor(t, live)
	if err != nil {
		t.Fatal(err)
	}
	return interceptor.NewClient(live, n.funcs())
}

// errNoApply: an apply configuration does not say which version it has become.
var errNoApply = errors.New("a Near client cannot apply: patch an object with client.Apply, or take Client")

// near is the cache of a scheme.
type near struct {
	live  client.Client
	cache cache.Cache

	mu sync.Mutex
	// due is what a reader of a kind must see at least.
	due map[schema.GroupVersionKind]map[client.ObjectKey]version
}

// version is the least resourceVersion of an object; 0: it is gone.
type version uint64

const gone version = 0

var (
	nearsMu sync.Mutex
	nears   = map[*runtime.Scheme]*near{}
)

const nodeName = "spec.nodeName"

// nearFor is the one of a scheme, which all tests share as they share the plane: Main ends with the process, and so do its watches.
func nearFor(t testing.TB, live client.WithWatch) (*near, error) {
	nearsMu.Lock()
	defer nearsMu.Unlock()
	if n := nears[live.Scheme()]; n != nil {
		return n, nil
	}
	options, err := connection()
	if err != nil {
		return nil, err
	}
	c, err := cache.New(Config(t), cache.Options{Scheme: live.Scheme(), HTTPClient: options.HTTPClient, Mapper: options.Mapper})
	if err != nil {
		return nil, fmt.Errorf("making the cache: %w", err)
	}
	ctx := context.Background()
	if live.Scheme().Recognizes(corev1.SchemeGroupVersion.WithKind("Pod")) {
		if err := c.IndexField(ctx, &corev1.Pod{}, nodeName, func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }); err != nil {
			return nil, fmt.Errorf("indexing pods: %w", err)
		}
	}
	go func() { _ = c.Start(ctx) }()
	if !c.WaitForCacheSync(t.Context()) {
		return nil, errors.New("the cache does not start")
	}
	n := &near{live: live, cache: c, due: map[schema.GroupVersionKind]map[client.ObjectKey]version{}}
	nears[live.Scheme()] = n
	return n, nil
}

func (n *near) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		Get: n.get, List: n.list,
		Create: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return n.wrote(ctx, o, api.Create(ctx, o, opts...))
		},
		Update: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return n.wrote(ctx, o, api.Update(ctx, o, opts...))
		},
		Patch: func(ctx context.Context, api client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return n.wrote(ctx, o, api.Patch(ctx, o, patch, opts...))
		},
		Delete: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return n.changed(ctx, o, api.Delete(ctx, o, opts...))
		},
		DeleteAllOf: n.deleteAllOf,
		Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			return errNoApply
		},
		SubResourceApply: func(context.Context, client.Client, string, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
			return errNoApply
		},
		SubResourceCreate: func(ctx context.Context, api client.Client, sub string, o, request client.Object, opts ...client.SubResourceCreateOption) error {
			return n.changed(ctx, o, api.SubResource(sub).Create(ctx, o, request, opts...))
		},
		SubResourceUpdate: func(ctx context.Context, api client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return n.wrote(ctx, o, api.SubResource(sub).Update(ctx, o, opts...))
		},
		SubResourcePatch: func(ctx context.Context, api client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return n.wrote(ctx, o, api.SubResource(sub).Patch(ctx, o, patch, opts...))
		},
	}
}

// wrote has readers see an object as it was answered. One whose last finalizer was taken away is gone with that.
func (n *near) wrote(ctx context.Context, o client.Object, err error) error {
	if err != nil {
		return err
	}
	if o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 {
		return n.changed(ctx, o, nil)
	}
	return n.expect(o, o.GetResourceVersion())
}

// changed has readers see an object as it is now, after a request that does not say what became of it.
func (n *near) changed(ctx context.Context, o client.Object, err error) error {
	if err != nil {
		return err
	}
	now, err := n.live.Scheme().New(n.kind(o))
	if err != nil {
		return fmt.Errorf("reading %T again: %w", o, err)
	}
	switch err := n.live.Get(context.WithoutCancel(ctx), client.ObjectKeyFromObject(o), now.(client.Object)); {
	case apierrors.IsNotFound(err):
		return n.expect(o, "0")
	case err != nil:
		return fmt.Errorf("reading %T again: %w", o, err)
	}
	return n.expect(o, now.(client.Object).GetResourceVersion())
}

// expect that readers see an object as of a resourceVersion; none is that of a request that changes nothing.
func (n *near) expect(o client.Object, resourceVersion string) error {
	if resourceVersion == "" {
		return nil
	}
	v, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return fmt.Errorf("%T %s: resourceVersion %q: %w", o, o.GetName(), resourceVersion, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	kind, key := n.kind(o), client.ObjectKeyFromObject(o)
	if n.due[kind] == nil {
		n.due[kind] = map[client.ObjectKey]version{}
	}
	if known, ok := n.due[kind][key]; !ok || version(v) == gone || version(v) > known {
		n.due[kind][key] = version(v)
	}
	return nil
}

func (n *near) deleteAllOf(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.DeleteAllOfOption) error {
	var all client.DeleteAllOfOptions
	all.ApplyOptions(opts)
	kind := n.kind(o)
	list, err := n.live.Scheme().New(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err != nil {
		return fmt.Errorf("listing %T: %w", o, err)
	}
	before := list.(client.ObjectList)
	if err := api.List(ctx, before, &all.ListOptions); err != nil {
		return err
	}
	if err := api.DeleteAllOf(ctx, o, opts...); err != nil {
		return err
	}
	return meta.EachListItem(before, func(item runtime.Object) error { return n.changed(ctx, item.(client.Object), nil) })
}

func (n *near) kind(o runtime.Object) schema.GroupVersionKind {
	kind, err := apiutil.GVKForObject(o, n.live.Scheme())
	if err != nil {
		panic(err) // the API server has taken it
	}
	return kind
}

func (n *near) get(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if len(opts) > 0 || !typed(o) {
		return api.Get(ctx, key, o, opts...)
	}
	kind, err := apiutil.GVKForObject(o, n.live.Scheme())
	if err != nil {
		return err
	}
	if err := n.await(ctx, kind); err != nil {
		return err
	}
	if err := n.cache.Get(ctx, key, o); err != nil {
		return err
	}
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // as the API server's answers are decoded
	return nil
}

func (n *near) list(ctx context.Context, api client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	kind, err := apiutil.GVKForObject(list, n.live.Scheme())
	if err != nil {
		return err
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	if !typed(list) || o.Limit > 0 || o.Continue != "" || o.Raw != nil || !indexed(kind, o) {
		return api.List(ctx, list, opts...)
	}
	if err := n.await(ctx, kind); err != nil {
		return err
	}
	if err := n.cache.List(ctx, list, opts...); err != nil {
		return err
	}
	return sorted(list)
}

// typed tells whether an object is no stand-in for one, whose watch would be another.
func typed(o runtime.Object) bool {
	switch o.(type) {
	case runtime.Unstructured, *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		return false
	}
	return true
}

func indexed(kind schema.GroupVersionKind, o client.ListOptions) bool {
	if o.FieldSelector == nil || o.FieldSelector.Empty() {
		return true
	}
	r := o.FieldSelector.Requirements()
	return kind.Kind == "Pod" && len(r) == 1 && r[0].Field == nodeName
}

// sorted is in the order of the API server, and without kinds, as it answers.
func sorted(list client.ObjectList) error {
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	for _, item := range items {
		item.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	slices.SortFunc(items, func(a, b runtime.Object) int {
		return strings.Compare(path(a), path(b))
	})
	return meta.SetList(list, items)
}

func path(o runtime.Object) string {
	return o.(client.Object).GetNamespace() + "/" + o.(client.Object).GetName()
}

// await the watch of a kind. What somebody else has changed meanwhile is asked for.
func (n *near) await(ctx context.Context, kind schema.GroupVersionKind) error {
	n.mu.Lock()
	due := make(map[client.ObjectKey]version, len(n.due[kind]))
	for key, v := range n.due[kind] {
		due[key] = v
	}
	n.mu.Unlock()
	for key, v := range due {
		if err := n.awaitOne(ctx, kind, key, v); err != nil {
			return fmt.Errorf("waiting for %s %s to be seen: %w", kind.Kind, key, err)
		}
	}
	return nil
}

func (n *near) awaitOne(ctx context.Context, kind schema.GroupVersionKind, key client.ObjectKey, due version) error {
	least := due
	created, err := n.live.Scheme().New(kind)
	if err != nil {
		return err
	}
	o := created.(client.Object)
	asked := time.Now()
	return wait.PollUntilContextTimeout(ctx, time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		is := gone
		if err := n.cache.Get(ctx, key, o); err == nil {
			v, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
			if err != nil {
				return false, err
			}
			is = version(v)
		} else if !apierrors.IsNotFound(err) {
			return false, err
		}
		if is == least || least != gone && is > least {
			n.seen(kind, key, due)
			return true, nil
		}
		if time.Since(asked) > time.Second {
			asked = time.Now()
			least = n.again(ctx, o, key, least)
		}
		return false, nil
	})
}

// again is what there is of an object that was gone, or made anew, before it was seen.
func (n *near) again(ctx context.Context, o client.Object, key client.ObjectKey, least version) version {
	switch err := n.live.Get(ctx, key, o); {
	case apierrors.IsNotFound(err):
		return gone
	case err != nil:
		return least
	}
	v, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return least
	}
	return version(v)
}

// seen drops what was waited for, unless something newer was written since.
func (n *near) seen(kind schema.GroupVersionKind, key client.ObjectKey, v version) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.due[kind][key] == v {
		delete(n.due[kind], key)
	}
}
