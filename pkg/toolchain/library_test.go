package toolchain_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

func TestMissingLibraryIsNamedWithItsPackage(t *testing.T) {
	w := newWorkshop(t)
	bin := t.TempDir()
	for name, script := range map[string]string{"gcc": "exit 0", "pkg-config": "echo no such thing; exit 1"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	tc, _ := w.toolchain()
	tc.Recipes[0].Libraries = []toolchain.Library{{Name: "libgreet", Package: "libgreet-dev"}}
	_, err := tc.Ensure(t.Context(), "hello")
	if !errors.Is(err, toolchain.ErrMissingC) || !strings.Contains(err.Error(), "apt-get install libgreet-dev") {
		t.Errorf("got %v, want ErrMissingC and what to install", err)
	}
	if left := w.entries(t); len(left) != 0 {
		t.Errorf("the cache holds %v, want nothing", left)
	}
}

func TestOnDemandIsNotAmongAll(t *testing.T) {
	w := newWorkshop(t)
	tc, _ := w.toolchain()
	tc.Recipes[0].OnDemand = true
	all, err := tc.Ensure(t.Context())
	if err != nil || len(all) != 0 {
		t.Errorf("asked for all: got %v, %v, want nothing", all, err)
	}
	named, err := tc.Ensure(t.Context(), "hello")
	if err != nil || len(named) != 1 {
		t.Errorf("asked by name: got %v, %v", named, err)
	}
}
