// Package toolchain provides the programs that the project runs beside its own: the control
// plane's components, kwok, helm, the generators and the linters. Each is built from a Go
// module below tools/ with pinned versions, once, into a cache keyed by what the build depends
// on; or taken from a directory that the user names, when the version there fits.
package toolchain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Origin tells where an installed program came from.
type Origin string

const (
	// Built means that this call compiled the program.
	Built Origin = "built"
	// Cached means that an earlier call had compiled it.
	Cached Origin = "cached"
	// Given means that it was found in a directory which the user named.
	Given Origin = "given"
)

// Installed is one program that is ready to be run.
type Installed struct {
	Tool    Tool
	Path    string // absolute
	Version string // such as v1.36.3
	Origin  Origin
	// Took is the time the build took, in this call or when the cache entry was made; zero for
	// Given.
	Took time.Duration
}

// Paths maps each tool to its absolute path.
type Paths map[Tool]string

// Toolchain finds and builds programs.
type Toolchain struct {
	// Root is the directory of the main module. Empty means: search upwards from the working
	// directory, once something has to be built.
	Root string
	// Cache is the directory that holds the entries.
	Cache string
	// Recipes are the modules that can be built.
	Recipes []Recipe
	// Given are directories whose fitting programs are used instead of building.
	Given []GivenDir
	// Progress receives lines for people. Nil means none.
	Progress io.Writer
	// Clock is used for durations and waiting.
	Clock clock.WithTicker

	mu sync.Mutex // guards Progress
}

// Default is the toolchain of the main module around the working directory, configured by the
// environment: MAINSPRING_CACHE, MAINSPRING_ASSETS, KUBEBUILDER_ASSETS, MAINSPRING_USE_PATH.
func Default(progress io.Writer) (*Toolchain, error) {
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	return &Toolchain{
		Cache:    filepath.Join(cache, "tools"),
		Recipes:  DefaultRecipes(),
		Given:    givenByEnvironment(),
		Progress: progress,
		Clock:    clock.RealClock{},
	}, nil
}

// CacheDir is $MAINSPRING_CACHE, or the directory "mainspring" in the user's cache directory.
func CacheDir() (string, error) {
	if dir := os.Getenv("MAINSPRING_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache directory (set MAINSPRING_CACHE): %w", err)
	}
	return filepath.Join(dir, "mainspring"), nil
}

// Ensure makes the tools available by the default toolchain and returns their paths.
func Ensure(ctx context.Context, progress io.Writer, tools ...Tool) (Paths, error) {
	t, err := Default(progress)
	if err != nil {
		return nil, err
	}
	installed, err := t.Ensure(ctx, tools...)
	if err != nil {
		return nil, err
	}
	paths := Paths{}
	for _, i := range installed {
		paths[i.Tool] = i.Path
	}
	return paths, nil
}

// Ensure makes the tools available, in the order asked; no tools means all but
// those on demand. It is safe to call from several goroutines and processes at once: each module is
// built by one of them. An interrupted build continues where it stopped, from the compiler's own
// cache.
func (t *Toolchain) Ensure(ctx context.Context, tools ...Tool) ([]Installed, error) {
	if len(tools) == 0 {
		tools = t.usual()
	}
	done := map[Tool]Installed{}
	for _, tool := range tools {
		if _, ok := done[tool]; ok {
			continue
		}
		recipe, program, err := t.find(tool)
		if err != nil {
			return nil, err
		}
		given, ok := t.given(ctx, recipe, program)
		if ok {
			done[tool] = given
			continue
		}
		entry, err := t.ensureEntry(ctx, recipe)
		if err != nil {
			return nil, fmt.Errorf("providing %s: %w", tool, err)
		}
		t.take(done, recipe, entry, tools)
	}
	ordered := make([]Installed, 0, len(tools))
	for _, tool := range tools {
		ordered = append(ordered, done[tool])
	}
	return ordered, nil
}

// take notes every wanted program of the entry that is not yet provided from elsewhere.
func (t *Toolchain) take(done map[Tool]Installed, recipe Recipe, e entry, wanted []Tool) {
	for _, p := range recipe.Programs {
		if _, ok := done[p.Name]; ok || !slices.Contains(wanted, p.Name) {
			continue
		}
		done[p.Name] = Installed{
			Tool: p.Name, Path: e.path(p.Name), Version: e.Versions[p.Name], Origin: e.origin, Took: e.Took,
		}
	}
}

// usual lists the programs that everybody needs.
func (t *Toolchain) usual() []Tool {
	var all []Tool
	for _, r := range t.Recipes {
		for _, p := range r.Programs {
			if !r.OnDemand {
				all = append(all, p.Name)
			}
		}
	}
	return all
}

// Tools lists every program of the recipes.
func (t *Toolchain) Tools() []Tool {
	var all []Tool
	for _, r := range t.Recipes {
		for _, p := range r.Programs {
			all = append(all, p.Name)
		}
	}
	return all
}

func (t *Toolchain) find(tool Tool) (Recipe, Program, error) {
	for _, r := range t.Recipes {
		for _, p := range r.Programs {
			if p.Name == tool {
				return r, p, nil
			}
		}
	}
	names := make([]string, 0, len(t.Tools()))
	for _, known := range t.Tools() {
		names = append(names, string(known))
	}
	return Recipe{}, Program{}, fmt.Errorf("tool %q is not known; known are %s", tool, strings.Join(names, ", "))
}

func (t *Toolchain) printf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.Progress != nil {
		fmt.Fprintf(t.Progress, format+"\n", args...)
	}
}

// MainModule is the module whose checkout holds tools/.
const MainModule = "github.com/mainspring-rt/mainspring"

// ErrNoCheckout means that no directory above the working directory is the main module.
var ErrNoCheckout = errors.New("not inside a checkout of " + MainModule)

// FindRoot returns the nearest directory at or above dir that is the root of the main module,
// or ErrNoCheckout.
func FindRoot(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("resolving %s: %w", dir, err)
	}
	for {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && moduleLine(string(content)) == MainModule {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", ErrNoCheckout
		}
		dir = parent
	}
}

func (t *Toolchain) root() (string, error) {
	if t.Root != "" {
		return t.Root, nil
	}
	root, err := FindRoot(".")
	if errors.Is(err, ErrNoCheckout) {
		return "", fmt.Errorf("%w: tools are built from its tools/ directory; run from the checkout, or set MAINSPRING_ASSETS to a directory that holds them", err)
	}
	return root, err
}
