package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/mainspring-rt/mainspring/pkg/localnode"
)

// ErrNoRealNodes means that a cluster has simulated nodes only, which run no image.
var ErrNoRealNodes = errors.New("it has no real nodes, which alone run images: start one with mainspring local up --real-nodes=1")

// Import makes the images of each archive known to every real node of the cluster of dir, by the program ctr of that path, and writes their names.
// Nothing is imported where one of the archives is not there.
func Import(ctx context.Context, dir, ctr string, archives []string, out io.Writer) error {
	state, err := realNodesOf(dir)
	if err != nil {
		return err
	}
	for i, archive := range archives {
		if _, err := os.Stat(archive); err != nil {
			return fmt.Errorf("image archive: %w; want an OCI archive, or what docker save writes", err)
		}
		if archives[i], err = filepath.Abs(archive); err != nil {
			return fmt.Errorf("image archive: %w", err)
		}
	}
	for _, n := range state.RealNodes {
		for _, archive := range archives {
			names, err := localnode.ImportImages(ctx, ctr, n.RuntimeSocket, archive)
			if err != nil {
				return fmt.Errorf("%s: %w", n.Name, err)
			}
			fmt.Fprintf(out, "%s: %s", n.Name, names)
		}
	}
	return nil
}

// realNodesOf reads the state of a running cluster with real nodes.
func realNodesOf(dir string) (State, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return State{}, fmt.Errorf("finding the cluster: %w", err)
	}
	state, err := Read(dir)
	if err == nil && len(state.RealNodes) == 0 {
		err = fmt.Errorf("the local cluster of %s: %w", dir, ErrNoRealNodes)
	}
	return state, err
}
