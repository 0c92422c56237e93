package rig

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A backend that does not work is told apart from a fast path that fails, with the reason that it gave.
func TestProbeSaysWhyABackendDoesNotWork(t *testing.T) {
	program := filepath.Join(t.TempDir(), "fastpath")
	script := "#!/bin/sh\necho starting with $3 >&2\necho probing backend hcbs: groups have no cpu.rt.max >&2\nexit 1\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := Probe(t.Context(), Programs{Fastpath: program}, "hcbs", 1, t.TempDir())
	var missing *UnavailableError
	if !errors.As(err, &missing) || missing.Backend != "hcbs" || missing.Reason != "probing backend hcbs: groups have no cpu.rt.max" {
		t.Errorf("got %v", err)
	}
}
