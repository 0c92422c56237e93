package chart

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Manifest is one rendered object.
type Manifest struct {
	*unstructured.Unstructured
	// Source is the text it was rendered as, comments included.
	Source []byte
}

// Manifests are what a chart renders, in the order in which it does.
type Manifests []Manifest

// OfKind returns the objects of a kind.
func (m Manifests) OfKind(kind string) Manifests {
	var found Manifests
	for _, object := range m {
		if object.GetKind() == kind {
			found = append(found, object)
		}
	}
	return found
}

// Decode returns the one object of the kind and name as a T; it is an error where there is none,
// more than one, or a field that T does not have.
func Decode[T any](m Manifests, kind, name string) (*T, error) {
	var found Manifests
	for _, object := range m.OfKind(kind) {
		if object.GetName() == name {
			found = append(found, object)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("the chart renders %d objects %s %q, not one", len(found), kind, name)
	}
	typed := new(T)
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(found[0].Object, typed, true)
	if err != nil {
		return nil, fmt.Errorf("decoding %s %q: %w", kind, name, err)
	}
	return typed, nil
}

func parse(rendered []byte) (Manifests, error) {
	var manifests Manifests
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(rendered)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return manifests, nil
		}
		if err != nil {
			return nil, fmt.Errorf("splitting rendered manifests: %w", err)
		}
		object := map[string]any{}
		if err := yaml.UnmarshalStrict(document, &object); err != nil {
			return nil, fmt.Errorf("decoding a rendered manifest: %w", err)
		}
		if len(object) > 0 {
			manifests = append(manifests, Manifest{&unstructured.Unstructured{Object: object}, document})
		}
	}
}
