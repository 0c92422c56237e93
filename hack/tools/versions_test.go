package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// required are the versions in a go.mod, replaced ones included, by module.
func required(t *testing.T, path string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for line := range strings.Lines(string(content)) {
		line, _, _ = strings.Cut(line, "//")
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		switch {
		case len(fields) == 2 && strings.HasPrefix(fields[1], "v"):
			versions[fields[0]] = fields[1]
		case len(fields) == 4 && fields[1] == "=>" && fields[0] == fields[2]:
			versions[fields[0]] = fields[3]
		}
	}
	return versions
}

// A package is compiled once for the product and for the tools where both have it, and all that it imports, in the same version. The
// control plane, kwok and helm share half of their packages with the product, so one module of another version costs minutes of a cold build.
func TestToolsShareVersionsWithTheProduct(t *testing.T) {
	product := required(t, filepath.Join("..", "..", "go.mod"))
	for _, tool := range []string{"controlplane", "kwok", "helm"} {
		shared := 0
		for module, version := range required(t, filepath.Join("..", "..", "tools", tool, "go.mod")) {
			if !isCommon(module) || product[module] == "" {
				continue
			}
			shared++
			if product[module] != version {
				t.Errorf("tools/%s has %s %s, the product %s", tool, module, version, product[module])
			}
		}
		if shared < 20 {
			t.Errorf("tools/%s shares %d modules with the product; this compares next to nothing", tool, shared)
		}
	}
}

// isCommon reports whether many packages import the module.
func isCommon(module string) bool {
	for _, prefix := range []string{"k8s.io/", "sigs.k8s.io/", "golang.org/x/", "google.golang.org/", "go.opentelemetry.io/", "github.com/go-openapi/", "github.com/google/", "go.yaml.in/"} {
		if strings.HasPrefix(module, prefix) {
			return true
		}
	}
	return false
}
