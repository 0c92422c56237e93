package containerd

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	containers "github.com/containerd/containerd/api/services/containers/v1"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Of the names of an image, the CRI records the first by alphabet with a container, whichever of them the pod says, and containerd writes no checkpoint
// of a container whose image is not there by the name that was recorded. As a retired name means a base image, it may be recorded with containers
// that have nothing to do with the checkpoint.

// Recorded tells whether a container is recorded with the image by this name, be it one that has ended and is kept.
func (c *Client) Recorded(ctx context.Context, name string) (bool, error) {
	ctx, cancel := short(ctx)
	defer cancel()
	answer, err := containers.NewContainersClient(c.conn).List(ctx, &containers.ListContainersRequest{Filters: []string{"image==" + strconv.Quote(name)}})
	if err != nil {
		return false, fmt.Errorf("listing the containers of image %s: %w", name, err)
	}
	return len(answer.GetContainers()) > 0, nil
}

// NameAnew has the image of a container be there by the name that was recorded with it, where that begins so and was removed while the container was
// being made.
func (c *Client) NameAnew(ctx context.Context, id, prefix string) error {
	ctx, cancel := short(ctx)
	defer cancel()
	record, err := containers.NewContainersClient(c.conn).Get(ctx, &containers.GetContainerRequest{ID: id})
	if err != nil {
		return fmt.Errorf("asking containerd for container %s: %w", id, err)
	}
	name := record.GetContainer().GetImage()
	if !strings.HasPrefix(name, prefix) {
		return nil
	}
	if target, err := c.target(ctx, name); err != nil || target != nil {
		return err
	}
	answer, err := cri.NewRuntimeServiceClient(c.conn).ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
	if is(err, codes.NotFound) {
		return nil // the caller that asks for its checkpoint is told
	}
	if err != nil {
		return fmt.Errorf("asking for the image of container %s: %w", id, err)
	}
	image := answer.GetStatus().GetImageId()
	target, err := c.target(ctx, image)
	if err != nil {
		return err
	}
	if target == nil {
		return fmt.Errorf("image %s of container %s is no longer there", image, id)
	}
	return c.name(ctx, name, target)
}
