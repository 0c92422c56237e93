package toolchain_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// given is a directory where each tool prints the version.
func given(t *testing.T, versions map[toolchain.Tool]string) string {
	t.Helper()
	dir := t.TempDir()
	for tool, version := range versions {
		script := fmt.Sprintf("#!/bin/sh\necho '%s'\n", version)
		if err := os.WriteFile(filepath.Join(dir, string(tool)), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestGivenPrograms(t *testing.T) {
	for name, c := range map[string]struct {
		tool    toolchain.Tool
		version string
		origin  toolchain.Origin
		said    string
	}{
		"same version":                {"hello", "hello v1.2.3", toolchain.Given, ""},
		"other patch":                 {"hello", "hello 1.2.9 (linux)", toolchain.Given, ""},
		"other minor":                 {"hello", "hello v1.3.0", toolchain.Built, "its version is v1.3.0, needed is v1.2.x"},
		"other patch, but exact":      {"goodbye", "v1.2.4", toolchain.Built, "its version is v1.2.4, needed is exactly v1.2.3"},
		"same version, exact":         {"goodbye", "Version: v1.2.3", toolchain.Given, ""},
		"no version":                  {"hello", "hello there", toolchain.Built, `"hello there" holds none`},
		"the other tool is not there": {"hello", "", toolchain.Built, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkshop(t)
			tc, progress := w.toolchain()
			versions := map[toolchain.Tool]string{c.tool: c.version}
			if c.version == "" {
				versions = nil
			}
			tc.Given = []toolchain.GivenDir{{Source: "KUBEBUILDER_ASSETS", Dir: given(t, versions)}}
			installed, err := tc.Ensure(t.Context(), c.tool)
			if err != nil {
				t.Fatal(err)
			}
			expectOrigin(t, installed, c.origin)
			if !strings.Contains(progress.String(), c.said) {
				t.Errorf("progress %q does not explain %q", progress, c.said)
			}
			if c.said != "" && !strings.Contains(progress.String(), "from KUBEBUILDER_ASSETS") {
				t.Errorf("progress %q does not name the variable", progress)
			}
		})
	}
}

func TestGivenByEnvironment(t *testing.T) {
	w := newWorkshop(t)
	assets := given(t, map[toolchain.Tool]string{toolchain.Kubectl: "Client Version: v1.36.7"})
	onPath := given(t, map[toolchain.Tool]string{toolchain.Kwok: "kwok version v0.8.2"})
	t.Setenv("KUBEBUILDER_ASSETS", assets)
	t.Setenv("MAINSPRING_ASSETS", "")
	t.Setenv("MAINSPRING_USE_PATH", "1")
	t.Setenv("PATH", onPath+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("MAINSPRING_CACHE", w.Cache)
	paths, err := toolchain.Ensure(t.Context(), nil, toolchain.Kubectl, toolchain.Kwok)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(assets, "kubectl"); paths[toolchain.Kubectl] != want {
		t.Errorf("kubectl is %s, want %s", paths[toolchain.Kubectl], want)
	}
	if want := filepath.Join(onPath, "kwok"); paths[toolchain.Kwok] != want {
		t.Errorf("kwok is %s, want %s", paths[toolchain.Kwok], want)
	}
}
