package nri

import (
	"fmt"
	"path"
	"strings"
)

// maxSlices bounds how deep a systemd slice may be nested.
const maxSlices = 32

// GroupPath is the path, below the root of each hierarchy, of the group that the runtime will make from an OCI
// cgroupsPath: a path with the kubelet's driver cgroupfs ("/kubepods/burstable/pod<UID>/<id>"), and
// "slice:prefix:id" with systemd, where every dash in the slice's name is a level
// (systemd.slice(5)).
func GroupPath(cgroupsPath string) (string, error) {
	parts := strings.Split(cgroupsPath, ":")
	switch len(parts) {
	case 1:
		clean := path.Clean("/" + cgroupsPath)
		if cgroupsPath == "" || clean == "/" || strings.Contains(cgroupsPath, "..") {
			return "", fmt.Errorf("cgroupsPath %q is no group below the root", cgroupsPath)
		}
		return clean, nil
	case 3:
		return scopePath(parts[0], parts[1], parts[2])
	}
	return "", fmt.Errorf("cgroupsPath %q is neither a path nor slice:prefix:id", cgroupsPath)
}

func scopePath(slice, prefix, id string) (string, error) {
	name, ok := strings.CutSuffix(slice, ".slice")
	if !ok || name == "" || strings.ContainsAny(slice+prefix+id, "/") || id == "" {
		return "", fmt.Errorf("systemd's group %q, %q, %q: want name.slice, a prefix and an id without slashes", slice, prefix, id)
	}
	scope := id + ".scope"
	if prefix != "" {
		scope = prefix + "-" + scope
	}
	var at strings.Builder
	if name != "-" { // the root slice
		parts := strings.Split(name, "-")
		if len(parts) > maxSlices {
			return "", fmt.Errorf("systemd's slice %q is nested %d deep; want at most %d", slice, len(parts), maxSlices)
		}
		for i, part := range parts {
			if part == "" {
				return "", fmt.Errorf("systemd's slice %q has an empty part", slice)
			}
			at.WriteString("/" + strings.Join(parts[:i+1], "-") + ".slice")
		}
	}
	return at.String() + "/" + scope, nil
}
