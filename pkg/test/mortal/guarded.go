package mortal

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Guard makes a call, or does not, or says something else about it.
type Guard func(call func() error) error

// Always makes the call.
func Always(call func() error) error { return call() }

// Guarded hands every call but watches to a guard. A dry run is a read.
func Guarded(api client.WithWatch, read, write Guard) client.WithWatch {
	funcs := subResources(read, write)
	funcs.Get = func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		return read(func() error { return api.Get(ctx, key, o, opts...) })
	}
	funcs.List = func(ctx context.Context, api client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		return read(func() error { return api.List(ctx, list, opts...) })
	}
	funcs.Create = func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		guard := write
		if len((&client.CreateOptions{}).ApplyOptions(opts).DryRun) > 0 {
			guard = read
		}
		return guard(func() error { return api.Create(ctx, o, opts...) })
	}
	funcs.Update = func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
		return write(func() error { return api.Update(ctx, o, opts...) })
	}
	funcs.Patch = func(ctx context.Context, api client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
		guard := write
		if len((&client.PatchOptions{}).ApplyOptions(opts).DryRun) > 0 {
			guard = read
		}
		return guard(func() error { return api.Patch(ctx, o, patch, opts...) })
	}
	funcs.Apply = func(ctx context.Context, api client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
		return write(func() error { return api.Apply(ctx, o, opts...) })
	}
	funcs.Delete = func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		return write(func() error { return api.Delete(ctx, o, opts...) })
	}
	funcs.DeleteAllOf = func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.DeleteAllOfOption) error {
		return write(func() error { return api.DeleteAllOf(ctx, o, opts...) })
	}
	return interceptor.NewClient(api, funcs)
}

func subResources(read, write Guard) interceptor.Funcs {
	return interceptor.Funcs{
		SubResourceGet: func(ctx context.Context, api client.Client, sub string, o, into client.Object, opts ...client.SubResourceGetOption) error {
			return read(func() error { return api.SubResource(sub).Get(ctx, o, into, opts...) })
		},
		SubResourceCreate: func(ctx context.Context, api client.Client, sub string, o, what client.Object, opts ...client.SubResourceCreateOption) error {
			options, guard := client.SubResourceCreateOptions{}, write
			if options.ApplyOptions(opts); len(options.DryRun) > 0 {
				guard = read
			}
			return guard(func() error { return api.SubResource(sub).Create(ctx, o, what, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, api client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return write(func() error { return api.SubResource(sub).Update(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, api client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return write(func() error { return api.SubResource(sub).Patch(ctx, o, patch, opts...) })
		},
		SubResourceApply: func(ctx context.Context, api client.Client, sub string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			return write(func() error { return api.SubResource(sub).Apply(ctx, o, opts...) })
		},
	}
}
