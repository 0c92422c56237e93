package toolchain_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// makefile makes a program that prints its version.
const makefile = `greet: ; @echo "  CC       $@"; printf '#!/bin/sh\necho v1.2.3\n' > sub/greet; chmod +x sub/greet
broken: ; @echo "greet.c:1: what is this" >&2; false
`

// served serves an archive of a source in C, and returns a recipe that builds it.
func served(t *testing.T) toolchain.Recipe {
	t.Helper()
	if _, err := exec.LookPath("/usr/lib/apt/apt-helper"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("sources in C are fetched by apt, which CI has: %v", err)
		}
		t.Skipf("sources in C are fetched by apt: %v", err)
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for name, text := range map[string]string{"greet-1.2.3/Makefile": makefile, "greet-1.2.3/sub/README": "x"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/gone" { // as from a mirror, one day
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(archive.Bytes())
	}))
	t.Cleanup(server.Close)
	sum := sha256.Sum256(archive.Bytes())
	return toolchain.Recipe{
		Module: "greet", Binary: "greet", Programs: []toolchain.Program{{Name: "greet", VersionArgs: []string{"--version"}}},
		Source: &toolchain.Source{
			Version: "v1.2.3", URLs: []string{server.URL + "/gone", server.URL + "/greet_1.2.3.orig.tar"}, SHA256: hex.EncodeToString(sum[:]), Make: []string{"greet"}, Built: "sub/greet",
		},
	}
}

func ensure(t *testing.T, cache string, recipe toolchain.Recipe) ([]toolchain.Installed, error) {
	t.Helper()
	tools := &toolchain.Toolchain{Cache: cache, Recipes: []toolchain.Recipe{recipe}, Clock: clock.RealClock{}}
	return tools.Ensure(t.Context(), "greet")
}

func TestASourceInCIsBuiltOnce(t *testing.T) {
	recipe, cache := served(t), t.TempDir()
	for _, want := range []toolchain.Origin{toolchain.Built, toolchain.Cached} {
		got, err := ensure(t, cache, recipe)
		if err != nil {
			t.Fatal(err)
		}
		if got[0].Origin != want || got[0].Version != "v1.2.3" {
			t.Errorf("got %+v, want %s", got[0], want)
		}
		if out, err := exec.CommandContext(t.Context(), got[0].Path).Output(); err != nil || string(out) != "v1.2.3\n" {
			t.Errorf("it prints %q, %v", out, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(cache, "*", "source*"))
	if err != nil || len(left) > 0 {
		t.Errorf("the source is still there: %v, %v", left, err)
	}
}

func TestWhatIsNotWhatWasPinnedIsNotBuilt(t *testing.T) {
	recipe, cache := served(t), t.TempDir()
	recipe.Source.SHA256 = strings.Repeat("0", 64)
	if _, err := ensure(t, cache, recipe); err == nil {
		t.Fatal("it was built")
	}
	left, err := filepath.Glob(filepath.Join(cache, "greet-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range left {
		if !strings.HasSuffix(path, ".lock") {
			t.Errorf("%s was left", path)
		}
	}
}

func TestASourceThatDoesNotCompileSaysWhy(t *testing.T) {
	recipe := served(t)
	recipe.Source.Make = []string{"broken"}
	if _, err := ensure(t, t.TempDir(), recipe); err == nil || !strings.Contains(err.Error(), "greet.c:1: what is this") {
		t.Errorf("got %v", err)
	}
}

func TestWhatABuildNeedsIsNamed(t *testing.T) {
	recipe := served(t)
	recipe.Libraries = []toolchain.Library{{Needed: "no-such-command", Package: "no-such-package"}}
	_, err := ensure(t, t.TempDir(), recipe)
	if !errors.Is(err, toolchain.ErrMissingC) || !strings.Contains(err.Error(), "apt-get install no-such-package") {
		t.Errorf("got %v", err)
	}
}
