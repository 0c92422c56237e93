package toolchain

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// keyLength is how many hex digits of the hash name a cache entry.
const keyLength = 16

// entryKey hashes what a build depends on: the module's go.mod, go.sum and Go files, the recipe,
// the compiler's version and the platform.
func (t *Toolchain) entryKey(ctx context.Context, recipe Recipe, dir string) (string, error) {
	if recipe.Source != nil {
		return recipe.sourceKey()
	}
	files, err := moduleFiles(dir)
	if err != nil {
		return "", err
	}
	version, err := goVersion(ctx, dir)
	if err != nil {
		return "", err
	}
	described, err := json.Marshal(recipe)
	if err != nil {
		return "", fmt.Errorf("describing the recipe: %w", err)
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%s %s/%s %v %v\n%s\n", version, runtime.GOOS, runtime.GOARCH, buildFlags, buildTags, described)
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return "", fmt.Errorf("hashing the module: %w", err)
		}
		fmt.Fprintf(hash, "%s %d\n", file, len(content))
		hash.Write(content)
	}
	return hex.EncodeToString(hash.Sum(nil))[:keyLength], nil
}

// moduleFiles lists the files of a tools module, sorted. Tools modules are flat.
func moduleFiles(dir string) ([]string, error) {
	listed, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing the module: %w", err)
	}
	var files []string
	for _, f := range listed {
		if f.Name() == "go.mod" || f.Name() == "go.sum" || strings.HasSuffix(f.Name(), ".go") {
			files = append(files, f.Name())
		}
	}
	return files, nil
}

// goVersion is the version of the compiler that the module's go.mod selects.
func goVersion(ctx context.Context, dir string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "env", "GOVERSION")
	cmd.Dir = dir
	cmd.Env = buildEnv()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("asking go for its version: %w: %s", err, firstLine(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// buildEnv is the environment of every call of go: what the user has, without what would make
// the same sources give another result.
func buildEnv() []string {
	return append(os.Environ(), "GOTOOLCHAIN=auto", "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0")
}

func firstLine(b []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	return line
}
