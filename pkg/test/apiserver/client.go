package apiserver

import (
	"context"
	"fmt"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Client reaches the shared plane past every cache.
func Client(t testing.TB, s *runtime.Scheme) client.WithWatch {
	t.Helper()
	options, err := connection()
	if err != nil {
		t.Fatal(err)
	}
	options.Scheme = s
	c, err := client.NewWithWatch(Config(t), options)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// connection is what all clients share: the plane tells once what it serves.
var connection = sync.OnceValues(func() (client.Options, error) {
	p, err := Shared()
	if err != nil {
		return client.Options{}, err
	}
	config := configOf(p)
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return client.Options{}, fmt.Errorf("connecting to the control plane: %w", err)
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, http)
	if err != nil {
		return client.Options{}, fmt.Errorf("asking what the control plane serves: %w", err)
	}
	return client.Options{HTTPClient: http, Mapper: mapper}, nil
})

// Empty takes away at once everything of the lists' kinds, whoever wants to be asked: what a test leaves, every later list
// of the package's tests would carry. It is for packages whose tests run one after another.
func Empty(t testing.TB, api client.Client, lists ...client.ObjectList) {
	t.Helper()
	ctx := context.Background() // that of the test is over when it cleans up
	for _, list := range lists {
		if err := empty(ctx, api, list); err != nil {
			t.Fatalf("taking away %T: %v", list, err)
		}
	}
}

func empty(ctx context.Context, api client.Client, list client.ObjectList) error {
	if err := api.List(ctx, list); err != nil {
		return err
	}
	namespaces := sets.New[string]()
	var kind client.Object
	if err := meta.EachListItem(list, func(item runtime.Object) error {
		o := item.(client.Object)
		kind = o
		namespaces.Insert(o.GetNamespace())
		if len(o.GetFinalizers()) == 0 {
			return nil
		}
		o.SetFinalizers(nil)
		return client.IgnoreNotFound(api.Update(ctx, o))
	}); err != nil {
		return err
	}
	for namespace := range namespaces {
		if err := emptyNamespace(ctx, api, kind, namespace); err != nil {
			return err
		}
	}
	return nil
}

// emptyNamespace asks again when thousands are not gone within the time that the API server gives a request.
func emptyNamespace(ctx context.Context, api client.Client, kind client.Object, namespace string) error {
	return retry.OnError(retry.DefaultRetry, apierrors.IsTimeout, func() error {
		return api.DeleteAllOf(ctx, kind, client.InNamespace(namespace), client.GracePeriodSeconds(0))
	})
}
