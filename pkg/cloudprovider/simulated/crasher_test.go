package simulated_test

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// errCrash stands for the end of the process: the write that returns it and all later ones of this
// life are lost to the caller, though the first may have reached the API server.
var errCrash = errors.New("the process died")

// crasher ends the process at a write to the API server: before it takes effect or right after.
type crasher struct {
	writesLeft int // until the crash; negative for none
	after      bool
	dead       bool
	// meanwhile happens once, elsewhere, between the process's decision to create a Node and the write.
	meanwhile func(node client.Object)
}

func (c *crasher) write(do func() error) error {
	switch {
	case c.dead:
		return errCrash
	case c.writesLeft < 0:
		return do()
	case c.writesLeft > 0:
		c.writesLeft--
		return do()
	}
	c.dead = true
	if c.after {
		_ = do() // its outcome dies with the process
	}
	return errCrash
}

func (c *crasher) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if hook := c.meanwhile; hook != nil {
				c.meanwhile = nil
				hook(o)
			}
			return c.write(func() error { return w.Create(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return c.write(func() error { return w.Delete(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return c.write(func() error { return w.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return c.write(func() error { return w.Patch(ctx, o, p, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, cl client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return c.write(func() error { return cl.SubResource(sub).Update(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, cl client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return c.write(func() error { return cl.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	}
}
