package toolchain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Edit corrects a mistake in the source of a pinned module, for as long as no release of the
// module does.
type Edit struct {
	// Module is the module, Package the import path and File the name of the file.
	Module, Package, File string
	Changes               []Change
}

// Change replaces Old, which occurs once in the file, by New. A build fails when it does not: with
// another version of the module, the edit is to be judged anew.
type Change struct{ Old, New string }

// ErrEditDoesNotFit means that a module's source is not what an Edit was made for.
var ErrEditDoesNotFit = errors.New("the edit does not fit the source")

// edit makes the edit in a copy of its module below dir, and returns a copy of the go.mod of the
// module at tools that replaces the one by the other. (go build -overlay would need no copies, but
// refuses to stand in for files of the module cache.)
func (e Edit) edit(ctx context.Context, tools, dir string) (string, error) {
	source, err := runGo(ctx, tools, "list", "-mod=readonly", "-find", "-f", "{{.Module.Dir}}", e.Package)
	if err != nil {
		return "", fmt.Errorf("finding the source of %s: %w", e.Package, err)
	}
	edited := filepath.Join(dir, "source")
	if err := os.CopyFS(edited, os.DirFS(source)); err != nil {
		return "", fmt.Errorf("copying the source of %s: %w", e.Module, err)
	}
	file := filepath.Join(edited, strings.TrimPrefix(e.Package, e.Module), e.File)
	if err := e.write(file); err != nil {
		return "", err
	}
	modfile := filepath.Join(dir, "go.mod")
	for _, name := range []string{"go.mod", "go.sum"} {
		if err := copyFile(filepath.Join(tools, name), filepath.Join(dir, name)); err != nil {
			return "", err
		}
	}
	if _, err := runGo(ctx, tools, "mod", "edit", "-replace="+e.Module+"="+edited, modfile); err != nil {
		return "", fmt.Errorf("replacing %s: %w", e.Module, err)
	}
	return modfile, nil
}

func (e Edit) write(file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading a file to edit: %w", err)
	}
	text := string(content)
	for _, c := range e.Changes {
		if n := strings.Count(text, c.Old); n != 1 {
			return fmt.Errorf("%w: %s of %s holds %q %d times", ErrEditDoesNotFit, e.File, e.Package, c.Old, n)
		}
		text = strings.Replace(text, c.Old, c.New, 1)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return fmt.Errorf("writing an edited file: %w", err)
	}
	return nil
}

// copyFile copies a file that may be missing.
func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = os.WriteFile(to, content, 0o644)
	}
	if err != nil {
		return fmt.Errorf("copying %s: %w", filepath.Base(from), err)
	}
	return nil
}

// runGo returns what go prints in a directory.
func runGo(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, buildEnv()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}
