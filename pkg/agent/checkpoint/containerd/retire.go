package containerd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	content "github.com/containerd/containerd/api/services/content/v1"
	images "github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/grpc/codes"
)

// maxIndex bounds an index that is read.
const maxIndex = 1 << 20

// Has tells whether one of the images is there.
func (c *Client) Has(ctx context.Context, names ...string) (bool, error) {
	ctx, cancel := short(ctx)
	defer cancel()
	target, err := c.first(ctx, names)
	return target != nil, err
}

// Images that begin so.
func (c *Client) Images(ctx context.Context, prefix string) ([]string, error) {
	ctx, cancel := short(ctx)
	defer cancel()
	list, err := images.NewImagesClient(c.conn).List(ctx, &images.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("listing images: %w", err)
	}
	var names []string
	for _, image := range list.GetImages() {
		if strings.HasPrefix(image.GetName(), prefix) {
			names = append(names, image.GetName())
		}
	}
	return names, nil
}

// Retire takes a checkpoint's state away from its image: the name means the first of the base images that is there, so that
// a container which is made from it later begins anew. Where none is, the name goes.
func (c *Client) Retire(ctx context.Context, name string, bases ...string) error {
	ctx, cancel := short(ctx)
	defer cancel()
	was, err := c.target(ctx, name)
	if err != nil || was == nil {
		return err
	}
	checkpoint, err := c.isCheckpoint(ctx, was)
	if err != nil || !checkpoint {
		return err // it was retired before
	}
	base, err := c.first(ctx, bases)
	if err != nil {
		return err
	}
	if base == nil {
		return c.Remove(ctx, name)
	}
	if err := c.name(ctx, name, base); err != nil {
		return err
	}
	return c.forget(ctx, was)
}

// Remove takes the image away. One that is not there is no mistake.
func (c *Client) Remove(ctx context.Context, name string) error {
	ctx, cancel := short(ctx)
	defer cancel()
	was, err := c.target(ctx, name)
	if err != nil || was == nil {
		return err
	}
	checkpoint, err := c.isCheckpoint(ctx, was)
	if err != nil {
		return err
	}
	if err := c.delete(ctx, name); err != nil || !checkpoint {
		return err
	}
	return c.forget(ctx, was)
}

// forget takes away the name that the CRI gave the image by its ID, which would keep its content.
func (c *Client) forget(ctx context.Context, target *types.Descriptor) error {
	list, err := images.NewImagesClient(c.conn).List(ctx, &images.ListImagesRequest{Filters: []string{"target.digest==" + target.GetDigest()}})
	if err != nil {
		return fmt.Errorf("listing an image's names: %w", err)
	}
	for _, image := range list.GetImages() {
		if strings.HasPrefix(image.GetName(), "sha256:") {
			if err := c.delete(ctx, image.GetName()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Client) delete(ctx context.Context, name string) error {
	_, err := images.NewImagesClient(c.conn).Delete(ctx, &images.DeleteImageRequest{Name: name})
	if err != nil && !is(err, codes.NotFound) {
		return fmt.Errorf("removing image %s: %w", name, err)
	}
	return nil
}

func (c *Client) first(ctx context.Context, names []string) (*types.Descriptor, error) {
	for _, name := range names {
		if name == "" {
			continue
		}
		if target, err := c.target(ctx, name); err != nil || target != nil {
			return target, err
		}
	}
	return nil, nil
}

// target is what the name means; nil when it means nothing.
func (c *Client) target(ctx context.Context, name string) (*types.Descriptor, error) {
	answer, err := images.NewImagesClient(c.conn).Get(ctx, &images.GetImageRequest{Name: name})
	if is(err, codes.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for image %s: %w", name, err)
	}
	return answer.GetImage().GetTarget(), nil
}

// isCheckpoint tells whether the index is one that Import made.
func (c *Client) isCheckpoint(ctx context.Context, target *types.Descriptor) (bool, error) {
	if target.GetMediaType() != typeIndex || target.GetSize() > maxIndex {
		return false, nil
	}
	stream, err := content.NewContentClient(c.conn).Read(ctx, &content.ReadContentRequest{Digest: target.GetDigest()})
	if err != nil {
		return false, fmt.Errorf("reading an image's index: %w", err)
	}
	var text []byte
	for len(text) <= maxIndex {
		part, err := stream.Recv()
		if err == io.EOF { //nolint:errorlint // gRPC returns it itself
			break
		}
		if is(err, codes.NotFound) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("reading an image's index: %w", err)
		}
		text = append(text, part.GetData()...)
	}
	return ofCheckpoint(text), nil
}

// ofCheckpoint tells whether an index is one of a checkpoint. What is no index is none.
func ofCheckpoint(text []byte) bool {
	var index struct{ Annotations map[string]string }
	return json.Unmarshal(text, &index) == nil && index.Annotations[annotationContainer] != ""
}
