package containerd

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime"
)

// The media types and annotations of OCI images, and those by which the runtime knows a checkpoint.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"

	annotationContainer = "org.criu.checkpoint.container.name"
	annotationEngine    = "org.criu.checkpoint.engine.name"
)

// Image is an archive that is to become an image.
type Image struct {
	// Name of the image.
	Name string
	// Container whose state it is.
	Container string
	// Archive is its path, Bytes and Digest ("sha256:...") what is in it.
	Archive string
	Bytes   int64
	Digest  string
}

// blob is a part of an image, addressed by its content.
type blob struct {
	Type        string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	content     []byte
	// refers are labels by which containerd's collector finds what the blob needs.
	refers map[string]string
}

// parts are what an image is made of beside its layer, which is the archive.
type parts struct{ layer, config, manifest, index blob }

// partsOf describes the image of one layer. A layer that is not compressed has its own digest for a diff ID and, being
// the only one, for a chain ID.
func partsOf(i Image, snapshotter string) (parts, error) {
	p := parts{layer: blob{Type: typeLayer, Digest: i.Digest, Size: i.Bytes}}
	about := map[string]string{annotationContainer: i.Container, annotationEngine: "containerd"}
	var err error
	p.config, err = jsonBlob(typeConfig, map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{i.Digest}},
	})
	if err != nil {
		return parts{}, err
	}
	p.config.refers = map[string]string{"containerd.io/gc.ref.snapshot." + snapshotter: i.Digest}
	p.manifest, err = jsonBlob(typeManifest, map[string]any{
		"schemaVersion": 2, "mediaType": typeManifest, "config": p.config, "layers": []blob{p.layer}, "annotations": about,
	})
	if err != nil {
		return parts{}, err
	}
	p.manifest.refers = map[string]string{"containerd.io/gc.ref.content.config": p.config.Digest, "containerd.io/gc.ref.content.l.0": p.layer.Digest}
	p.index, err = jsonBlob(typeIndex, map[string]any{
		"schemaVersion": 2, "mediaType": typeIndex, "manifests": []blob{p.manifest}, "annotations": about,
	})
	p.index.refers = map[string]string{"containerd.io/gc.ref.content.m.0": p.manifest.Digest}
	return p, err
}

func jsonBlob(kind string, value any) (blob, error) {
	content, err := json.Marshal(value)
	if err != nil {
		return blob{}, fmt.Errorf("describing the image: %w", err)
	}
	sum := sha256.Sum256(content)
	return blob{Type: kind, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(content)), content: content}, nil
}
