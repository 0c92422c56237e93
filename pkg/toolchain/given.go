package toolchain

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"
)

// GivenDir is a directory with programs that the user already has.
type GivenDir struct {
	// Source is the environment variable that names it, for messages.
	Source string
	// Dir is the directory; empty means the directories of PATH.
	Dir string
}

func givenByEnvironment() []GivenDir {
	var dirs []GivenDir
	for _, name := range []string{"MAINSPRING_ASSETS", "KUBEBUILDER_ASSETS"} {
		if dir := os.Getenv(name); dir != "" {
			dirs = append(dirs, GivenDir{Source: name, Dir: dir})
		}
	}
	if os.Getenv("MAINSPRING_USE_PATH") == "1" {
		dirs = append(dirs, GivenDir{Source: "MAINSPRING_USE_PATH"})
	}
	return dirs
}

// given returns the program from the first directory where its version fits. It says why a
// program that is there does not fit.
func (t *Toolchain) given(ctx context.Context, recipe Recipe, program Program) (Installed, bool) {
	for _, dir := range t.Given {
		path, ok := dir.lookup(program.Name)
		if !ok {
			continue
		}
		version, err := t.checkFit(ctx, recipe, program, path)
		if err != nil {
			t.printf("%s: not using %s from %s: %v", program.Name, path, dir.Source, err)
			continue
		}
		return Installed{Tool: program.Name, Path: path, Version: version, Origin: Given}, true
	}
	return Installed{}, false
}

func (d GivenDir) lookup(tool Tool) (string, bool) {
	name := string(tool)
	if d.Dir != "" {
		name = filepath.Join(d.Dir, name)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", false
	}
	path, err = filepath.Abs(path)
	return path, err == nil
}

// checkFit returns the program's version, or an error that names what it has and what it needs.
func (t *Toolchain) checkFit(ctx context.Context, recipe Recipe, program Program, path string) (string, error) {
	want, err := t.pinnedVersion(recipe, program.Pin)
	if err != nil {
		return "", err
	}
	have, err := probeVersion(ctx, path, program.VersionArgs)
	if err != nil {
		return "", err
	}
	if program.Exact {
		if have != want {
			return "", fmt.Errorf("its version is %s, needed is exactly %s", have, want)
		}
		return have, nil
	}
	wantMajor, wantMinor := majorMinor(want)
	if major, minor := majorMinor(have); major != wantMajor || minor != wantMinor {
		return "", fmt.Errorf("its version is %s, needed is v%s.%s.x", have, wantMajor, wantMinor)
	}
	return have, nil
}

func (t *Toolchain) pinnedVersion(recipe Recipe, pin string) (string, error) {
	if recipe.Source != nil {
		return recipe.Source.Version, nil
	}
	dir, err := t.moduleDir(recipe)
	if err != nil {
		return "", err
	}
	gomod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("reading the pinned version: %w", err)
	}
	return requiredVersion(string(gomod), pin)
}

const probeTimeout = 20 * time.Second

var versionPattern = regexp.MustCompile(`\bv?(\d+\.\d+\.\d+[-+.\w]*)`)

// probeVersion runs the program and returns the first version it prints, as vX.Y.Z.
func probeVersion(ctx context.Context, path string, args []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("asking for its version: %w", err)
	}
	match := versionPattern.FindSubmatch(out)
	if match == nil {
		return "", fmt.Errorf("asking for its version: %q holds none", firstLine(out))
	}
	return "v" + string(match[1]), nil
}
