// Package kube is the little that the commands need of the Kubernetes API beyond client-go: YAML documents in, objects
// applied.
package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// requestTimeout bounds one request.
const requestTimeout = 30 * time.Second

// Parse reads the documents of a YAML file; origin is its name in errors.
func Parse(origin string, data []byte) ([]*unstructured.Unstructured, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	var all []*unstructured.Unstructured
	for number := 1; ; number++ {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(obj)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: document %d: %w; want a Kubernetes object in YAML", origin, number, err)
		}
		if len(obj.Object) == 0 {
			continue
		}
		if obj.GetKind() == "" || obj.GetName() == "" {
			return nil, fmt.Errorf("%s: document %d: want an object with kind and metadata.name", origin, number)
		}
		all = append(all, obj)
	}
}

// Apply creates objects, or brings those that exist to the given form.
func Apply(ctx context.Context, c client.Client, objects ...*unstructured.Unstructured) error {
	for _, obj := range objects {
		if err := applyOne(ctx, c, obj.DeepCopy()); err != nil {
			return fmt.Errorf("applying %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
	return nil
}

func applyOne(ctx context.Context, c client.Client, obj *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := c.Create(ctx, obj.DeepCopy())
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		existing := obj.DeepCopy()
		if err := c.Get(ctx, client.ObjectKeyFromObject(obj), existing); err != nil {
			return err
		}
		obj.SetResourceVersion(existing.GetResourceVersion())
		return c.Update(ctx, obj)
	})
}

const (
	// poolsTimeout bounds how long NodePools may take to be ready; they need no machine for it.
	poolsTimeout = 30 * time.Second
	// poolsEvery is the pause between two looks at a NodePool.
	poolsEvery = 100 * time.Millisecond
)

// AwaitPools waits until the NodePools among the objects are ready. Pods that come before are looked at again only seconds
// later, so whoever measures waits for them first.
func AwaitPools(ctx context.Context, c client.Client, clk clock.WithTicker, objects ...*unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, poolsTimeout)
	defer cancel()
	for _, obj := range objects {
		if obj.GetKind() != "NodePool" {
			continue
		}
		if err := awaitPool(ctx, c, clk, obj.DeepCopy()); err != nil {
			return fmt.Errorf("waiting for NodePool %s to be ready: %w", obj.GetName(), err)
		}
	}
	return nil
}

func awaitPool(ctx context.Context, c client.Client, clk clock.WithTicker, pool *unstructured.Unstructured) error {
	ticker := clk.NewTicker(poolsEvery)
	defer ticker.Stop()
	found := "it has no condition Ready"
	for {
		if err := c.Get(ctx, client.ObjectKeyFromObject(pool), pool); err != nil && ctx.Err() == nil {
			return err
		}
		ready, words := poolReady(pool)
		if ready {
			return nil
		}
		if words != "" {
			found = words
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; %s", context.Cause(ctx), found)
		case <-ticker.C():
		}
	}
}

// poolReady looks for the condition Ready; words tell what it says.
func poolReady(pool *unstructured.Unstructured) (ready bool, words string) {
	conditions, _, _ := unstructured.NestedSlice(pool.Object, "status", "conditions") // none when the status has another form
	for _, one := range conditions {
		condition, _ := one.(map[string]any)
		if condition["type"] == "Ready" {
			return condition["status"] == "True", fmt.Sprintf("its condition Ready is %v: %v", condition["status"], condition["message"])
		}
	}
	return false, ""
}

// Patch applies a merge patch to one object.
func Patch(ctx context.Context, c client.Client, obj client.Object, patch string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := c.Patch(ctx, obj, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		return fmt.Errorf("changing %s %s: %w", obj.GetObjectKind().GroupVersionKind().Kind, obj.GetName(), err)
	}
	return nil
}

// Object names an object without its content, for Patch and Delete.
func Object(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetAPIVersion(apiVersion)
	obj.SetKind(kind)
	obj.SetNamespace(namespace)
	obj.SetName(name)
	return obj
}
