package toolchain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
)

// Source is a program in C that is built from an archive of Debian's, whatever release of Debian this machine has.
type Source struct {
	// Version of the program, such as v4.1.1.
	Version string
	// URLs of the archive, a tar file, in the order in which they are tried: a mirror drops it when Debian has a later one.
	URLs []string
	// SHA256 of it, in hexadecimal digits.
	SHA256 string
	// Make are the targets and variables that make is called with.
	Make []string
	// Built is the program's path below the source's directory.
	Built string
}

// ErrNoApt means that the archive cannot be fetched because Debian's client is not there.
var ErrNoApt = errors.New("apt is not there to fetch it")

// ErrChecksum means that what was fetched is not what was pinned.
var ErrChecksum = errors.New("it is not what was pinned")

// aptHelper fetches a file the way apt does: with the machine's mirrors and proxies.
const aptHelper = "/usr/lib/apt/apt-helper"

// sourceKey hashes what the build depends on.
func (r Recipe) sourceKey() (string, error) {
	described, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("describing the recipe: %w", err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s\n%s\n", runtime.GOOS, runtime.GOARCH, described))
	return hex.EncodeToString(sum[:])[:keyLength], nil
}

// buildSource fetches, verifies, unpacks and makes the program, in a directory that goes afterwards.
func (t *Toolchain) buildSource(ctx context.Context, recipe Recipe, _, dir string) error {
	work := filepath.Join(dir, "source")
	if err := os.Mkdir(work, 0o755); err != nil {
		return fmt.Errorf("creating a build directory: %w", err)
	}
	defer os.RemoveAll(work) // what is left of it does no harm
	archive := filepath.Join(dir, "source.tar")
	defer os.Remove(archive)
	if err := t.fetch(ctx, recipe, archive); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "tar", "-C", work, "--strip-components=1", "-xf", archive).CombinedOutput(); err != nil {
		return fmt.Errorf("unpacking the source of %s: %w: %s", recipe.label(), err, firstLine(out))
	}
	cmd := exec.CommandContext(ctx, "make", append([]string{"-j" + strconv.Itoa(runtime.NumCPU())}, recipe.Source.Make...)...)
	cmd.Dir = work
	if err := t.build(ctx, recipe.label(), cmd, (*buildLog).addMake); err != nil {
		return err
	}
	return install(filepath.Join(work, recipe.Source.Built), filepath.Join(dir, "bin", recipe.Binary))
}

// fetch has apt fetch the archive from the first place that has it, and verifies it.
func (t *Toolchain) fetch(ctx context.Context, recipe Recipe, to string) error {
	if _, err := os.Stat(aptHelper); err != nil {
		return fmt.Errorf("fetching the source of %s: %w: %w", recipe.label(), ErrNoApt, err)
	}
	var errs []error
	for _, url := range recipe.Source.URLs {
		t.printf("%s: fetching %s", recipe.label(), url)
		out, err := exec.CommandContext(ctx, aptHelper, "-oAPT::Sandbox::User=", "download-file", url, to, "SHA256:"+recipe.Source.SHA256).CombinedOutput()
		if err == nil {
			return verify(to, recipe.Source.SHA256)
		}
		errs = append(errs, fmt.Errorf("fetching %s: %w: %s", url, err, out))
	}
	return errors.Join(errs...)
}

func verify(path, want string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("verifying what was fetched: %w", err)
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return fmt.Errorf("verifying what was fetched: %w", err)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != want {
		return fmt.Errorf("verifying what was fetched: %w: its SHA-256 is %s, not %s", ErrChecksum, got, want)
	}
	return nil
}

// install copies a program.
func install(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("installing %s: %w", filepath.Base(to), err)
	}
	content, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, content, 0o755)
	}
	if err != nil {
		return fmt.Errorf("installing %s: %w", filepath.Base(to), err)
	}
	return nil
}
