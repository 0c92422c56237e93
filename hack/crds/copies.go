package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kwok "sigs.k8s.io/karpenter/kwok/apis"
	karpenter "sigs.k8s.io/karpenter/pkg/apis"
	"sigs.k8s.io/yaml"
)

// copies maps a file name, <group>_<plural>.yaml, to the bytes of one definition.
type copies map[string][]byte

// definitions gathers Karpenter's definitions and those in the folder own, unchanged but for the reason that NodePools take.
func definitions(own string) (copies, error) {
	pools, err := withReason(karpenter.NodePoolCRD)
	if err != nil {
		return nil, err
	}
	sources := [][]byte{
		pools,
		karpenter.NodeClaimCRD,
		karpenter.NodeOverlayCRD,
		karpenter.CapacityBufferCRD,
		kwok.KWOKNodeClassCRD,
	}
	ours, err := read(own)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		sources = append(sources, ours[name])
	}
	wanted := copies{}
	for _, source := range sources {
		name, err := fileName(source)
		if err != nil {
			return nil, err
		}
		if _, exists := wanted[name]; exists {
			return nil, fmt.Errorf("definition %s exists twice", name)
		}
		wanted[name] = source
	}
	return wanted, nil
}

// reasonEdits let budgets of NodePools name the reason for which nodes under real-time pressure are replaced.
var reasonEdits = []struct{ old, new string }{
	{"allowed reasons are Underutilized, Empty, Drifted, and Unhealthy.", "allowed reasons are Underutilized, Empty, Drifted, Unhealthy, and RTPressure."},
	{"- Drifted\n                                - Unhealthy\n", "- Drifted\n                                - Unhealthy\n                                - RTPressure\n"},
}

// withReason makes the edits. That one has not exactly one place means that upstream's definition is no longer what
// they were written for.
func withReason(source []byte) ([]byte, error) {
	for _, edit := range reasonEdits {
		if n := bytes.Count(source, []byte(edit.old)); n != 1 {
			return nil, fmt.Errorf("adding a reason to Karpenter's NodePool: it has %q %d times, want once", edit.old, n)
		}
		source = bytes.Replace(source, []byte(edit.old), []byte(edit.new), 1)
	}
	return source, nil
}

// fileName is the name that controller-gen gives the file of a definition.
func fileName(source []byte) (string, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(source, crd); err != nil {
		return "", fmt.Errorf("decoding a definition: %w", err)
	}
	if crd.Spec.Group == "" || crd.Spec.Names.Plural == "" {
		return "", fmt.Errorf("definition %q has no group or plural name", crd.Name)
	}
	return fmt.Sprintf("%s_%s.yaml", crd.Spec.Group, crd.Spec.Names.Plural), nil
}

// read returns the YAML files of a folder; a folder that does not exist has none.
func read(dir string) (copies, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return copies{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing definitions: %w", err)
	}
	files := copies{}
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) != ".yaml" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading a definition: %w", err)
		}
		files[entry.Name()] = data
	}
	return files, nil
}

// compare names what write would change in dir.
func compare(dir string, wanted copies) ([]string, error) {
	present, err := read(dir)
	if err != nil {
		return nil, err
	}
	var differences []string
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		data, ok := present[name]
		switch {
		case !ok:
			differences = append(differences, name+" is missing")
		case !bytes.Equal(data, wanted[name]):
			differences = append(differences, name+" differs from its source")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(present)) {
		if _, ok := wanted[name]; !ok {
			differences = append(differences, name+" has no source")
		}
	}
	return differences, nil
}

// write makes the YAML files of dir exactly the wanted ones.
func write(dir string, wanted copies) error {
	present, err := read(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("creating the folder of the copies: %w", err)
	}
	for name, data := range wanted {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return fmt.Errorf("writing a copy: %w", err)
		}
	}
	for name := range present {
		if _, ok := wanted[name]; ok {
			continue
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("removing a copy without source: %w", err)
		}
	}
	return nil
}
