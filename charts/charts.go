// Package charts carries the CustomResourceDefinitions of chart mainspring-crds: those of Karpenter, of its kwok provider
// and Mainspring's own.
package charts

import (
	"embed"
	"fmt"
	"io/fs"
)

//go:embed mainspring-crds/files/*.yaml
var files embed.FS

// CRDs returns the definitions as YAML, in the order of their file names.
func CRDs() ([][]byte, error) {
	names, err := fs.Glob(files, "mainspring-crds/files/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("listing embedded CRDs: %w", err)
	}
	all := make([][]byte, 0, len(names))
	for _, name := range names {
		data, err := files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("reading embedded CRD: %w", err)
		}
		all = append(all, data)
	}
	return all, nil
}
