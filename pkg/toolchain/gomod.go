package toolchain

import (
	"fmt"
	"strings"
)

// moduleLine returns the module path that a go.mod declares, or "".
func moduleLine(gomod string) string {
	for line := range strings.Lines(gomod) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "module "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// requiredVersion returns the version that a go.mod requires of a module.
func requiredVersion(gomod, module string) (string, error) {
	for line := range strings.Lines(gomod) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) >= 2 && fields[0] == module && strings.HasPrefix(fields[1], "v") {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("go.mod does not require %s", module)
}

// majorMinor returns the first two numbers of a version such as v1.36.3.
func majorMinor(version string) (string, string) {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return parts[0], ""
	}
	return parts[0], parts[1]
}
