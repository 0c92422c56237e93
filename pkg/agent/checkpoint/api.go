package checkpoint

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// API is what the keeper needs of the API server.
type API interface {
	// Get reads a NodeCheckpoint from the API server, not from a cache.
	Get(ctx context.Context, name string) (*v1alpha1.NodeCheckpoint, error)
	// Report writes one side of the status of one certain NodeCheckpoint; of one certain version of it, where that is not empty.
	Report(ctx context.Context, of Version, role Role, side v1alpha1.CheckpointSide) error
	// Copied tells whether another pod is in the place of one, or is to be, and has not finished.
	Copied(ctx context.Context, namespace string, pod types.UID) (bool, error)
	// Deleted tells whether a pod is deleted, and whether it is gone altogether.
	Deleted(ctx context.Context, pod Pod) (deleted, gone bool, err error)
	// Images lists the images that pods of this node ask for.
	Images(ctx context.Context) (map[string]bool, error)
}

// Version of a NodeCheckpoint.
type Version struct {
	Name string
	UID  types.UID
	// Resource is its resourceVersion; empty: whichever it has.
	Resource string
}
