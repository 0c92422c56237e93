package toolchain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// entry is one directory of the cache: a built module. It appears by a rename, so it is either
// whole or not there.
type entry struct {
	dir    string
	origin Origin

	Took     time.Duration   `json:"took"`
	Versions map[Tool]string `json:"versions"`
}

const (
	manifestName  = "build.json"
	partialSuffix = ".partial-"
)

func (e entry) path(tool Tool) string {
	return filepath.Join(e.dir, "bin", string(tool))
}

// readEntry returns the entry at dir and whether it is there with all of the recipe's programs.
func readEntry(dir string, recipe Recipe) (entry, bool) {
	e := entry{dir: dir, origin: Cached}
	content, err := os.ReadFile(filepath.Join(dir, manifestName))
	if err != nil || json.Unmarshal(content, &e) != nil {
		return entry{}, false
	}
	for _, p := range recipe.Programs {
		if info, err := os.Stat(e.path(p.Name)); err != nil || !info.Mode().IsRegular() {
			return entry{}, false
		}
	}
	return e, true
}

func (t *Toolchain) moduleDir(recipe Recipe) (string, error) {
	if recipe.Source != nil {
		return "", nil
	}
	root, err := t.root()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, "tools", recipe.Module), nil
}

// ensureEntry returns the cache entry of the recipe as its module now is, building it when it is
// not there.
func (t *Toolchain) ensureEntry(ctx context.Context, recipe Recipe) (entry, error) {
	module, err := t.moduleDir(recipe)
	if err != nil {
		return entry{}, err
	}
	key, err := t.entryKey(ctx, recipe, module)
	if err != nil {
		return entry{}, err
	}
	dir := filepath.Join(t.Cache, recipe.Module+"-"+key)
	if e, ok := readEntry(dir, recipe); ok {
		return e, nil
	}
	if err := os.MkdirAll(t.Cache, 0o755); err != nil {
		return entry{}, fmt.Errorf("creating the cache: %w", err)
	}
	unlock, err := t.lock(ctx, dir+".lock", recipe)
	if err != nil {
		return entry{}, err
	}
	defer unlock()
	if e, ok := readEntry(dir, recipe); ok { // another one built it meanwhile
		return e, nil
	}
	return t.buildEntry(ctx, recipe, module, dir)
}

// buildEntry builds into a directory beside dir and renames it. The caller holds the lock.
func (t *Toolchain) buildEntry(ctx context.Context, recipe Recipe, module, dir string) (entry, error) {
	if err := removeLeftovers(dir); err != nil {
		return entry{}, err
	}
	partial, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+partialSuffix)
	if err != nil {
		return entry{}, fmt.Errorf("creating a build directory: %w", err)
	}
	built, err := t.buildInto(ctx, recipe, module, partial)
	if err == nil {
		err = os.Rename(partial, dir)
	}
	if err != nil {
		return entry{}, errors.Join(err, os.RemoveAll(partial))
	}
	built.dir, built.origin = dir, Built
	return built, nil
}

// removeLeftovers removes what killed builds left beside dir, and dir itself when it is damaged.
func removeLeftovers(dir string) error {
	stale, err := filepath.Glob(dir + partialSuffix + "*")
	if err != nil {
		return fmt.Errorf("listing old build directories: %w", err)
	}
	for _, path := range append(stale, dir) {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("removing an old build: %w", err)
		}
	}
	return nil
}

func (t *Toolchain) buildInto(ctx context.Context, recipe Recipe, module, dir string) (entry, error) {
	e := entry{dir: dir, Versions: map[Tool]string{}}
	for _, p := range recipe.Programs {
		version, err := t.pinnedVersion(recipe, p.Pin)
		if err != nil {
			return entry{}, err
		}
		e.Versions[p.Name] = version
	}
	if err := recipe.checkLibraries(ctx); err != nil {
		return entry{}, err
	}
	start := t.Clock.Now()
	build := t.buildModule
	if recipe.Source != nil {
		build = t.buildSource
	}
	if err := build(ctx, recipe, module, dir); err != nil {
		return entry{}, err
	}
	e.Took = t.Clock.Since(start)
	if err := linkPrograms(dir, recipe); err != nil {
		return entry{}, err
	}
	manifest, err := json.Marshal(e)
	if err != nil {
		return entry{}, fmt.Errorf("describing the build: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, manifestName), manifest, 0o644); err != nil {
		return entry{}, fmt.Errorf("writing the manifest: %w", err)
	}
	return e, nil
}

// buildModule builds a Go module into dir.
func (t *Toolchain) buildModule(ctx context.Context, recipe Recipe, module, dir string) error {
	flags, err := t.ldflags(recipe)
	if err != nil {
		return err
	}
	modfile := ""
	if recipe.Edit != nil {
		edited := filepath.Join(dir, "edited")
		defer os.RemoveAll(edited) // what is left of it does no harm
		if modfile, err = recipe.Edit.edit(ctx, module, edited); err != nil {
			return err
		}
	}
	return t.goBuild(ctx, goBuild{
		label: recipe.label(), dir: module, pkg: recipe.Package, ldflags: flags, modfile: modfile,
		tags: recipe.Tags, cgo: len(recipe.Libraries) > 0,
		out: filepath.Join(dir, "bin", recipe.Binary),
	})
}

// linkPrograms makes every program of a multi-call binary callable by its name.
func linkPrograms(dir string, recipe Recipe) error {
	for _, p := range recipe.Programs {
		if string(p.Name) == recipe.Binary {
			continue
		}
		if err := os.Symlink(recipe.Binary, filepath.Join(dir, "bin", string(p.Name))); err != nil {
			return fmt.Errorf("linking %s: %w", p.Name, err)
		}
	}
	return nil
}

var versionPlaceholder = regexp.MustCompile(`\{(version|major|minor):([^}]+)\}`)

// ldflags returns the linker flags with the pinned versions filled in.
func (t *Toolchain) ldflags(recipe Recipe) (string, error) {
	flags := strings.Join(append([]string{"-s", "-w"}, recipe.LDFlags...), " ")
	var errs []error
	flags = versionPlaceholder.ReplaceAllStringFunc(flags, func(placeholder string) string {
		match := versionPlaceholder.FindStringSubmatch(placeholder)
		version, err := t.pinnedVersion(recipe, match[2])
		errs = append(errs, err)
		majorPart, minorPart := majorMinor(version)
		return map[string]string{"version": version, "major": majorPart, "minor": minorPart}[match[1]]
	})
	return flags, errors.Join(errs...)
}

// label names the recipe and its programs for people.
func (r Recipe) label() string {
	names := make([]string, 0, len(r.Programs))
	for _, p := range r.Programs {
		names = append(names, string(p.Name))
	}
	if len(names) == 1 {
		return names[0]
	}
	return r.Module + " (" + strings.Join(names, ", ") + ")"
}
