// Package apis carries the CustomResourceDefinitions of Mainspring's own types, generated from the
// Go types next to it.
package apis

import (
	"embed"
	"fmt"
	"io/fs"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

//go:embed crds/*.yaml
var crds embed.FS

// CRDs returns our CustomResourceDefinitions in the order of their file names. Every call returns
// new objects. Karpenter's are in sigs.k8s.io/karpenter/pkg/apis.
func CRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	files, err := fs.Glob(crds, "crds/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("listing embedded CRDs: %w", err)
	}
	list := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(files))
	for _, file := range files {
		data, err := crds.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading embedded CRD: %w", err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(data, crd); err != nil {
			return nil, fmt.Errorf("decoding embedded CRD %s: %w", file, err)
		}
		list = append(list, crd)
	}
	return list, nil
}
