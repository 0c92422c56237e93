package containerd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	content "github.com/containerd/containerd/api/services/content/v1"
	diff "github.com/containerd/containerd/api/services/diff/v1"
	images "github.com/containerd/containerd/api/services/images/v1"
	snapshots "github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// chunk is how much of an archive goes into one message.
	chunk = 1 << 20
	// importKeep is for how long containerd keeps the parts of an image whose import died midway.
	importKeep = time.Hour
	// knownTimeout bounds how long the CRI takes to learn of an image, and knownEvery is how often it is asked.
	knownTimeout, knownEvery = 20 * time.Second, 50 * time.Millisecond
)

// Import makes the archive an image that a container can be restored from, and returns when the CRI knows it. What is
// there already of an earlier attempt is taken as it is: everything is addressed by its content, which containerd verifies.
func (c *Client) Import(ctx context.Context, i Image) error {
	p, err := partsOf(i, c.snapshotter)
	if err != nil {
		return err
	}
	ctx, done, err := c.leased(ctx, "mainspring-"+p.layer.Digest, importKeep)
	if err != nil {
		return err
	}
	defer done()
	archive, err := os.Open(i.Archive)
	if err != nil {
		return fmt.Errorf("opening the archive: %w", err)
	}
	defer archive.Close()
	if err := c.write(ctx, p.layer, archive); err != nil {
		return fmt.Errorf("giving containerd the archive: %w", err)
	}
	if err := c.unpack(ctx, p.layer); err != nil {
		return err
	}
	for _, b := range []blob{p.config, p.manifest, p.index} {
		if err := c.write(ctx, b, bytes.NewReader(b.content)); err != nil {
			return fmt.Errorf("giving containerd the image's description: %w", err)
		}
	}
	if err := c.name(ctx, i.Name, p.index.descriptor()); err != nil {
		return err
	}
	return c.known(ctx, i.Name)
}

func (b blob) descriptor() *types.Descriptor {
	return &types.Descriptor{MediaType: b.Type, Digest: b.Digest, Size: b.Size}
}

// write puts a blob into containerd's store, unless it is there.
func (c *Client) write(ctx context.Context, b blob, from io.Reader) error {
	client := content.NewContentClient(c.conn)
	if _, err := client.Info(ctx, &content.InfoRequest{Digest: b.Digest}); err == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // frees a stream that was left midway
	stream, err := client.Write(ctx)
	if err != nil {
		return err
	}
	w := writer{stream: stream, blob: b, ref: "mainspring-" + b.Digest}
	if err := w.copy(from); err != nil {
		return err
	}
	err = w.send(&content.WriteContentRequest{Action: content.WriteAction_COMMIT, Offset: w.offset, Labels: b.refers})
	if is(err, codes.AlreadyExists) {
		return nil
	}
	return err
}

// writer sends a blob in pieces, each answered before the next.
type writer struct {
	stream content.Content_WriteClient
	blob   blob
	ref    string
	offset int64
}

func (w *writer) copy(from io.Reader) error {
	buffer := make([]byte, min(chunk, max(w.blob.Size, 1)))
	for {
		n, err := io.ReadFull(from, buffer)
		if n > 0 {
			if err := w.send(&content.WriteContentRequest{Action: content.WriteAction_WRITE, Offset: w.offset, Data: buffer[:n]}); err != nil {
				return err
			}
			w.offset += int64(n)
		}
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return nil
		case err != nil:
			return err
		}
	}
}

func (w *writer) send(r *content.WriteContentRequest) error {
	r.Ref, r.Total, r.Expected = w.ref, w.blob.Size, w.blob.Digest
	sent := w.stream.Send(r)
	if _, err := w.stream.Recv(); err != nil { // says why sending failed
		return err
	}
	return sent
}

// unpack makes a snapshot of the layer: a runtime mounts that, not the archive.
func (c *Client) unpack(ctx context.Context, layer blob) error {
	client := snapshots.NewSnapshotsClient(c.conn)
	if _, err := client.Stat(ctx, &snapshots.StatSnapshotRequest{Snapshotter: c.snapshotter, Key: layer.Digest}); err == nil {
		return nil
	}
	key := "mainspring-" + layer.Digest
	_, err := client.Remove(ctx, &snapshots.RemoveSnapshotRequest{Snapshotter: c.snapshotter, Key: key}) // of an attempt that died
	if err != nil && !is(err, codes.NotFound) {
		return fmt.Errorf("removing what is left of an import: %w", err)
	}
	made, err := client.Prepare(ctx, &snapshots.PrepareSnapshotRequest{Snapshotter: c.snapshotter, Key: key})
	if err != nil {
		return fmt.Errorf("preparing a snapshot: %w", err)
	}
	applied, err := diff.NewDiffClient(c.conn).Apply(ctx, &diff.ApplyRequest{Diff: layer.descriptor(), Mounts: made.GetMounts()})
	if err != nil {
		return fmt.Errorf("unpacking the archive: %w", err)
	}
	if got := applied.GetApplied().GetDigest(); got != layer.Digest {
		return fmt.Errorf("unpacking the archive: containerd unpacked %s, not %s", got, layer.Digest)
	}
	_, err = client.Commit(ctx, &snapshots.CommitSnapshotRequest{Snapshotter: c.snapshotter, Name: layer.Digest, Key: key})
	if err != nil && !is(err, codes.AlreadyExists) {
		return fmt.Errorf("keeping the snapshot: %w", err)
	}
	return nil
}

// name has the image's name mean the target, whatever it meant before. The kubelet does not collect a pinned image.
func (c *Client) name(ctx context.Context, name string, target *types.Descriptor) error {
	client := images.NewImagesClient(c.conn)
	image := &images.Image{Name: name, Target: target, Labels: map[string]string{"io.cri-containerd.pinned": "pinned"}}
	_, err := client.Create(ctx, &images.CreateImageRequest{Image: image})
	if is(err, codes.AlreadyExists) {
		_, err = client.Update(ctx, &images.UpdateImageRequest{Image: image})
	}
	if err != nil {
		return fmt.Errorf("naming image %s: %w", name, err)
	}
	return nil
}

// known waits until the CRI, which follows containerd's events, knows the image.
func (c *Client) known(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, knownTimeout)
	defer cancel()
	ticker := c.clock.NewTicker(knownEvery)
	defer ticker.Stop()
	for {
		answer, err := cri.NewImageServiceClient(c.conn).ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}})
		if err == nil && answer.GetImage() != nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until the CRI knows image %s: %w", name, ctx.Err())
		case <-ticker.C():
		}
	}
}
