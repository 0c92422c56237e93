package toolchain_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// TestRecipesFitTheirModules checks the recipes against tools/: every module has one, and pins
// the versions that are asked for.
func TestRecipesFitTheirModules(t *testing.T) {
	root, err := toolchain.FindRoot(".")
	if err != nil {
		t.Fatal(err)
	}
	modules := map[string]bool{}
	seen := map[toolchain.Tool]bool{}
	for _, recipe := range toolchain.DefaultRecipes() {
		if recipe.Source != nil {
			if len(recipe.Source.SHA256) != 64 {
				t.Errorf("recipe %s pins no SHA-256", recipe.Module)
			}
			continue
		}
		modules[recipe.Module] = true
		gomod, err := os.ReadFile(filepath.Join(root, "tools", recipe.Module, "go.mod"))
		if err != nil {
			t.Errorf("recipe %s has no module: %v", recipe.Module, err)
			continue
		}
		for _, p := range recipe.Programs {
			if seen[p.Name] {
				t.Errorf("%s is built by two recipes", p.Name)
			}
			seen[p.Name] = true
			pinned := regexp.MustCompile(`(?m)^\s*(require )?` + regexp.QuoteMeta(p.Pin) + ` v\d`)
			if !pinned.Match(gomod) {
				t.Errorf("tools/%s/go.mod does not require %s", recipe.Module, p.Pin)
			}
		}
	}
	dirs, err := os.ReadDir(filepath.Join(root, "tools"))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if !modules[d.Name()] {
			t.Errorf("tools/%s has no recipe", d.Name())
		}
	}
}
