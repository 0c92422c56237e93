package image_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/localnode/image"
)

// unpack reads an archive.
func unpack(t *testing.T, content []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	r := tar.NewReader(bytes.NewReader(content))
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func decode(t *testing.T, content []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(content, into); err != nil {
		t.Fatalf("%v: %s", err, content)
	}
}

func TestArchiveIsAnImageOfTheProgram(t *testing.T) {
	dir := t.TempDir()
	program, archive := filepath.Join(dir, "p"), filepath.Join(dir, "p.tar")
	other := filepath.Join(dir, "q")
	for path, content := range map[string]string{program: "machine code", other: "more of it"} {
		if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := (image.Image{Reference: "example.test/p:1", Programs: []string{program, other}}).Save(archive); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	files := unpack(t, content)
	for name, blob := range files {
		sum := sha256.Sum256(blob)
		if digest, ok := strings.CutPrefix(name, "blobs/sha256/"); ok && digest != hex.EncodeToString(sum[:]) {
			t.Errorf("%s does not hold what its name says", name)
		}
	}
	type reference struct {
		Digest      string
		Annotations map[string]string
	}
	blob := func(r reference) []byte { return files["blobs/"+strings.Replace(r.Digest, ":", "/", 1)] }
	var index struct{ Manifests []reference }
	decode(t, files["index.json"], &index)
	if len(index.Manifests) != 1 || index.Manifests[0].Annotations["io.containerd.image.name"] != "example.test/p:1" {
		t.Fatalf("the index names %v", index.Manifests)
	}
	var manifest struct {
		Config reference
		Layers []reference
	}
	decode(t, blob(index.Manifests[0]), &manifest)
	var config struct{ Config struct{ Entrypoint []string } }
	decode(t, blob(manifest.Config), &config)
	if len(manifest.Layers) != 1 || len(config.Config.Entrypoint) != 1 {
		t.Fatalf("%d layers, entry point %v", len(manifest.Layers), config.Config.Entrypoint)
	}
	inside := unpack(t, blob(manifest.Layers[0]))
	if got := inside[strings.TrimPrefix(config.Config.Entrypoint[0], "/")]; string(got) != "machine code" {
		t.Errorf("the entry point is %q", got)
	}
	if got := inside["q"]; string(got) != "more of it" {
		t.Errorf("the other program is %q", got)
	}
}

func TestAnImageNeedsAProgram(t *testing.T) {
	if err := (image.Image{Reference: "example.test/p:1"}).Save(filepath.Join(t.TempDir(), "p.tar")); err == nil {
		t.Error("an image of nothing was made")
	}
}

func TestAProgramThatIsNotThereIsNamed(t *testing.T) {
	err := image.Image{Reference: "example.test/p:1", Programs: []string{"/does/not/exist"}}.Save(filepath.Join(t.TempDir(), "p.tar"))
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "example.test/p:1") {
		t.Errorf("got %v", err)
	}
}

// contents returns the files of the image's layer by their names, and its entry point.
func contents(t *testing.T, archive string) (files map[string][]byte, entrypoint []string) {
	t.Helper()
	content, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	outer := unpack(t, content)
	type reference struct{ Digest string }
	blob := func(r reference) []byte { return outer["blobs/"+strings.Replace(r.Digest, ":", "/", 1)] }
	var index struct{ Manifests []reference }
	decode(t, outer["index.json"], &index)
	var manifest struct {
		Config reference
		Layers []reference
	}
	decode(t, blob(index.Manifests[0]), &manifest)
	var config struct{ Config struct{ Entrypoint []string } }
	decode(t, blob(manifest.Config), &config)
	return unpack(t, blob(manifest.Layers[0])), config.Config.Entrypoint
}

// The shell of every Debian is linked with the C library.
func TestInstalledProgramsBringTheirLibraries(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "sh.tar")
	if err := (image.Image{Reference: "example.test/sh:1", Installed: []string{"/bin/sh"}}).Save(archive); err != nil {
		t.Fatal(err)
	}
	files, entrypoint := contents(t, archive)
	if len(entrypoint) != 1 || entrypoint[0] != "/bin/sh" {
		t.Errorf("the entry point is %q", entrypoint)
	}
	var loader, library bool
	for name, content := range files {
		loader = loader || strings.Contains(filepath.Base(name), "ld-linux")
		library = library || strings.HasPrefix(filepath.Base(name), "libc.so")
		if strings.HasPrefix(name, "/") || len(content) == 0 {
			t.Errorf("file %q has %d bytes", name, len(content))
		}
	}
	if files["bin/sh"] == nil || !loader || !library {
		t.Errorf("of the program, its loader and its library something is missing among %d files", len(files))
	}
}

func TestWhatIsNoBinaryIsRefused(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for program, want := range map[string]string{script: "want a binary of this machine", "bin/sh": "want an absolute path", "/does/not/exist": "no such file"} {
		archive := filepath.Join(t.TempDir(), "x.tar")
		err := image.Image{Reference: "example.test/x:1", Installed: []string{program}}.Save(archive)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), program) {
			t.Errorf("%s: %v, want %q", program, err, want)
		}
		if _, err := os.Stat(archive); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: an archive was written: %v", program, err)
		}
	}
}
