package image

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// loaderTimeout bounds what the dynamic loader takes to find the libraries of a program.
const loaderTimeout = 30 * time.Second

// librariesOf returns the paths of the dynamic loader and of the libraries that a binary is linked with; none for a static one. The binary's own
// loader finds them (ld.so(8), --list) and does not run it.
func librariesOf(program string) ([]string, error) {
	if !filepath.IsAbs(program) {
		return nil, fmt.Errorf("program %q: want an absolute path, which it has in the image, too", program)
	}
	binary, err := elf.Open(program)
	if err != nil {
		return nil, fmt.Errorf("program %q: %w; want a binary of this machine, not a script", program, err)
	}
	defer binary.Close()
	loader, err := loaderOf(binary)
	if err != nil {
		return nil, fmt.Errorf("program %q: reading the path of its loader: %w", program, err)
	}
	if loader == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), loaderTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, loader, "--list", program).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("program %q: finding its libraries with %s: %w: %s", program, loader, err, strings.TrimSpace(string(out)))
	}
	libraries, err := parseLibraries(string(out))
	if err != nil {
		return nil, fmt.Errorf("program %q: %w", program, err)
	}
	return append(libraries, loader), nil
}

// loaderOf returns the path of the dynamic loader; empty: the binary is static.
func loaderOf(binary *elf.File) (string, error) {
	for _, p := range binary.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		path, err := io.ReadAll(p.Open())
		return string(bytes.TrimRight(path, "\x00")), err
	}
	return "", nil
}

// parseLibraries reads lines such as "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f...)". The kernel's own library has no path.
func parseLibraries(listed string) ([]string, error) {
	var paths []string
	for line := range strings.Lines(listed) {
		name, path, found := strings.Cut(strings.TrimSpace(line), " => ")
		if !found {
			continue // linux-vdso.so.1, or the loader itself
		}
		path, _, _ = strings.Cut(path, " (")
		if !filepath.IsAbs(path) {
			return nil, fmt.Errorf("library %s is not installed", name)
		}
		paths = append(paths, path)
	}
	return paths, nil
}
