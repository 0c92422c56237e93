package toolchain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Library is a C library that a program is linked with, or something else that its build needs.
type Library struct {
	// Name as pkg-config knows it; empty: pkg-config does not.
	Name string
	// Needed is the name of a command, or the path of a header, that the build needs; only without Name.
	Needed string `json:",omitempty"`
	// Package of Debian and Ubuntu that holds it, or its headers.
	Package string
}

// ErrMissingC means that a program cannot be built because a C compiler or library is not there.
var ErrMissingC = errors.New("something that is not a Go module is missing")

// checkLibraries says what has to be installed before the recipe can be built.
func (r Recipe) checkLibraries(ctx context.Context) error {
	if len(r.Libraries) == 0 {
		return nil
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		return fmt.Errorf("%w: %s is built with a C compiler: apt-get install gcc libc6-dev", ErrMissingC, r.label())
	}
	if _, err := exec.LookPath("pkg-config"); err != nil {
		return fmt.Errorf("%w: %s is built with pkg-config: apt-get install pkg-config", ErrMissingC, r.label())
	}
	for _, l := range r.Libraries {
		if l.Name == "" {
			if err := r.checkNeeded(l); err != nil {
				return err
			}
			continue
		}
		if out, err := exec.CommandContext(ctx, "pkg-config", "--print-errors", "--exists", l.Name).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s is linked with %s: apt-get install %s (pkg-config: %s)",
				ErrMissingC, r.label(), l.Name, l.Package, strings.Join(strings.Fields(string(out)), " "))
		}
	}
	return nil
}

func (r Recipe) checkNeeded(l Library) error {
	var err error
	if filepath.IsAbs(l.Needed) {
		_, err = os.Stat(l.Needed)
	} else {
		_, err = exec.LookPath(l.Needed)
	}
	if err != nil {
		return fmt.Errorf("%w: %s is built with %s: apt-get install %s", ErrMissingC, r.label(), l.Needed, l.Package)
	}
	return nil
}
