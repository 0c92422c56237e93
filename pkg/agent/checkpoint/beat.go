package checkpoint

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// beatEvery is how often a side tells that it is at something of which it sees no progress: the runtime writes a state, or takes one.
const beatEvery = 20 * time.Second

// meanwhile does what takes as long as its size allows, and tells now and then that it is being done: a controller that waits
// gives up what does not advance.
func (k *Keeper) meanwhile(ctx context.Context, nc *v1alpha1.NodeCheckpoint, role Role, side v1alpha1.CheckpointSide, do func() error) error {
	beating, stop := context.WithCancel(ctx)
	stopped := make(chan struct{})
	defer func() { stop(); <-stopped }()
	go func() {
		defer close(stopped)
		ticker := k.Clock.NewTicker(beatEvery)
		defer ticker.Stop()
		for {
			select {
			case <-beating.Done():
				return
			case now := <-ticker.C():
				side.ProgressTime = ptr.To(metav1.NewMicroTime(now))
				if err := k.report(beating, nc, role, side); err != nil {
					k.Log.V(1).Info("that a checkpoint goes on was not written", "error", err.Error())
				}
			}
		}
	}()
	return do()
}
