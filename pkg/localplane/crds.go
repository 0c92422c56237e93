package localplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
)

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

const (
	crdTimeout   = time.Minute
	fieldManager = "mainspring-localplane"
)

// ApplyCRDs applies CustomResourceDefinitions, given as YAML or JSON with one or more documents
// each, and waits until all of them are Established.
func (p *Plane) ApplyCRDs(ctx context.Context, manifests ...[]byte) error {
	ctx, cancel := context.WithTimeout(ctx, crdTimeout)
	defer cancel()
	var names []string
	for _, manifest := range manifests {
		crds, err := decodeCRDs(manifest)
		if err != nil {
			return err
		}
		for _, crd := range crds {
			if err := p.applyCRD(ctx, crd); err != nil {
				return err
			}
			names = append(names, crd.GetName())
		}
	}
	for _, name := range names {
		err := p.poll(ctx, func(ctx context.Context) error { return p.established(ctx, name) })
		if err != nil {
			return fmt.Errorf("waiting for CustomResourceDefinition %s: %w", name, err)
		}
	}
	return nil
}

func decodeCRDs(manifest []byte) ([]*unstructured.Unstructured, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	var crds []*unstructured.Unstructured
	for {
		crd := &unstructured.Unstructured{}
		err := decoder.Decode(&crd.Object)
		if errors.Is(err, io.EOF) {
			return crds, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decoding a CustomResourceDefinition: %w", err)
		}
		if len(crd.Object) == 0 {
			continue
		}
		if crd.GetKind() != "CustomResourceDefinition" {
			return nil, fmt.Errorf("%s %q is not a CustomResourceDefinition", crd.GetKind(), crd.GetName())
		}
		crds = append(crds, crd)
	}
}

func (p *Plane) applyCRD(ctx context.Context, crd *unstructured.Unstructured) error {
	body, err := json.Marshal(crd)
	if err != nil {
		return fmt.Errorf("encoding CustomResourceDefinition %s: %w", crd.GetName(), err)
	}
	force := true
	_, err = p.dynamic.Resource(crdResource).Patch(ctx, crd.GetName(), types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: fieldManager, Force: &force})
	if err != nil {
		return fmt.Errorf("applying CustomResourceDefinition %s: %w", crd.GetName(), err)
	}
	return nil
}

// established returns nil once the API server serves the CustomResourceDefinition.
func (p *Plane) established(ctx context.Context, name string) error {
	crd, err := p.dynamic.Resource(crdResource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	conditions, _, err := unstructured.NestedSlice(crd.Object, "status", "conditions")
	if err != nil {
		return fmt.Errorf("reading its conditions: %w", err)
	}
	for _, c := range conditions {
		condition, ok := c.(map[string]any)
		if ok && condition["type"] == "Established" && condition["status"] == "True" {
			return nil
		}
	}
	return fmt.Errorf("not Established yet: %v", conditions)
}
