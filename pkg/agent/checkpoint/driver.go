package checkpoint

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint/containerd"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// The drivers' names, in CheckpointCapability.driver.
const (
	DriverCRI  = "cri"
	DriverPod  = "pod"
	DriverNone = "none"
)

// ErrUnsupported means that this node cannot do it.
var ErrUnsupported = errors.New("this node cannot checkpoint or restore")

// Pod whose containers are meant.
type Pod struct {
	Namespace, Name string
	UID             types.UID
}

// Driver is how a node takes the state of containers and makes containers of it.
type Driver interface {
	// Capability is what the node can do now.
	Capability(ctx context.Context) v1alpha1.CheckpointCapability
	// Containers of the pod that run or are paused.
	Containers(ctx context.Context, pod types.UID) ([]containerd.Container, error)
	// Memory is how much a container works with and has written to its file system, in bytes.
	Memory(ctx context.Context, pod types.UID, id string) (memory, written int64, err error)
	// Pause stops a container where it is; Resume lets it go on. What is so already stays so; one that is gone stays gone.
	Pause(ctx context.Context, id string) error
	Resume(ctx context.Context, id string) error
	// Paused tells whether a container stands still, and Runs whether it is at work: one that has ended does neither.
	Paused(ctx context.Context, id string) (bool, error)
	Runs(ctx context.Context, id string) (bool, error)
	// Terminating tells whether the kubelet lists the pod, and lists it as deleted, so that it begins none of its containers anew.
	Terminating(ctx context.Context, pod types.UID) (listed, terminating bool, err error)
	// Kill ends a paused container, as the kubelet does at the end of a grace period. One that is gone stays gone.
	Kill(ctx context.Context, id string) error
	// Checkpoint writes the state of a container, which is paused, and returns the path of the archive. It must not be
	// cancelled midway, as that may harm the container.
	Checkpoint(ctx context.Context, pod Pod, container string, timeout time.Duration) (string, error)
	// Has tells whether the runtime has one of the images.
	Has(ctx context.Context, names ...string) (bool, error)
	// Import makes an archive an image that a container can be restored from.
	Import(ctx context.Context, i containerd.Image) error
	// Restored lists the node's containers that were made of such images.
	Restored(ctx context.Context) ([]containerd.Container, error)
	// Retire has the name mean a base image from now on; Remove takes it away. Images lists those that begin so.
	Retire(ctx context.Context, name string, bases ...string) error
	Remove(ctx context.Context, name string) error
	Images(ctx context.Context, prefix string) ([]string, error)
	// Recorded tells whether a container counts on the name, whatever image its pod names.
	Recorded(ctx context.Context, name string) (bool, error)
}
