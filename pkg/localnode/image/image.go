// Package image makes container images of programs of this machine, as OCI archives that a runtime imports, without a
// registry.
package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Image is a container image of programs, and of the libraries that they are linked with.
type Image struct {
	// Reference is the image's full name, such as mainspring.local/load:test.
	Reference string
	// Programs are paths of binaries that need no library. They are in the image's root directory; the first
	// is the entry point.
	Programs []string
	// Installed are paths of binaries that are in the image at the same paths, as are the libraries that they are linked with. The first is the
	// entry point where there are no Programs.
	Installed []string
}

// The media types of OCI.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// BuildProgram compiles a main package of this module to a program that needs no library.
func BuildProgram(ctx context.Context, pkg, out string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOTOOLCHAIN=auto")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", pkg, err, text)
	}
	return nil
}

// Save writes the image as an archive.
func (i Image) Save(path string) error {
	if len(i.Programs)+len(i.Installed) == 0 {
		return fmt.Errorf("making image %s: it has no program", i.Reference)
	}
	var archive bytes.Buffer
	if err := i.write(&archive); err != nil {
		return fmt.Errorf("making image %s: %w", i.Reference, err)
	}
	if err := os.WriteFile(path, archive.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing image %s: %w", i.Reference, err)
	}
	return nil
}

// blob is a part of an image, addressed by its content.
type blob struct {
	Type        string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	content     []byte
}

func newBlob(kind string, content []byte) blob {
	sum := sha256.Sum256(content)
	return blob{Type: kind, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: len(content), content: content}
}

func jsonBlob(kind string, value any) (blob, error) {
	content, err := json.Marshal(value)
	return newBlob(kind, content), err
}

// write writes index, manifest, configuration and the one layer.
func (i Image) write(out io.Writer) error {
	layer, err := i.layer()
	if err != nil {
		return err
	}
	config, err := jsonBlob(typeConfig, map[string]any{
		"architecture": runtime.GOARCH, "os": runtime.GOOS,
		"config": map[string]any{"Entrypoint": []string{i.entrypoint()}, "Env": []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layer.Digest}},
	})
	if err != nil {
		return err
	}
	manifest, err := jsonBlob(typeManifest, map[string]any{
		"schemaVersion": 2, "mediaType": typeManifest, "config": config, "layers": []blob{layer},
	})
	if err != nil {
		return err
	}
	manifest.Annotations = map[string]string{"io.containerd.image.name": i.Reference}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": typeIndex, "manifests": []blob{manifest}})
	if err != nil {
		return err
	}
	content := map[string][]byte{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`), "index.json": index}
	order := []string{"oci-layout", "index.json"}
	for _, b := range []blob{layer, config, manifest} {
		name := "blobs/sha256/" + b.Digest[len("sha256:"):]
		content[name] = b.content
		order = append(order, name)
	}
	return archiveOf(out, content, order...)
}

func (i Image) entrypoint() string {
	if len(i.Programs) > 0 {
		return "/" + filepath.Base(i.Programs[0])
	}
	return i.Installed[0]
}

// layer holds the programs and libraries.
func (i Image) layer() (blob, error) {
	content, order := map[string][]byte{}, make([]string, 0, len(i.Programs))
	add := func(name, path string) error {
		if _, there := content[name]; there {
			return nil
		}
		file, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading a program: %w", err)
		}
		content[name], order = file, append(order, name)
		return nil
	}
	for _, path := range i.Programs {
		if err := add(filepath.Base(path), path); err != nil {
			return blob{}, err
		}
	}
	for _, path := range i.Installed {
		libraries, err := librariesOf(path)
		if err != nil {
			return blob{}, err
		}
		for _, file := range append([]string{path}, libraries...) {
			if err := add(strings.TrimPrefix(file, "/"), file); err != nil {
				return blob{}, err
			}
		}
	}
	var files bytes.Buffer
	err := archiveOf(&files, content, order...)
	return newBlob(typeLayer, files.Bytes()), err
}

// archiveOf writes the files in order; all may be executed.
func archiveOf(out io.Writer, files map[string][]byte, order ...string) error {
	w := tar.NewWriter(out)
	for _, name := range order {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(files[name]))}); err != nil {
			return err
		}
		if _, err := w.Write(files[name]); err != nil {
			return err
		}
	}
	return w.Close()
}
