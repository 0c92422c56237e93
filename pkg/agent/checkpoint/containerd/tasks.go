package containerd

import (
	"context"
	"fmt"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The kubelet's labels of containers.
const (
	labelPodUID    = "io.kubernetes.pod.uid"
	labelContainer = "io.kubernetes.container.name"
)

// Container of a pod that runs, or is paused.
type Container struct {
	Name, ID string
	// Image that the runtime restored it from; empty: it was begun anew.
	RestoredFrom string
}

// Containers of the pod that run or are paused.
func (c *Client) Containers(ctx context.Context, pod types.UID) ([]Container, error) {
	ctx, cancel := short(ctx)
	defer cancel()
	answer, err := cri.NewRuntimeServiceClient(c.conn).ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
		State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}, LabelSelector: map[string]string{labelPodUID: string(pod)},
	}})
	if err != nil {
		return nil, fmt.Errorf("listing the pod's containers: %w", err)
	}
	return containersOf(answer.GetContainers()), nil
}

// Restored lists all containers of the node that were made from checkpoints and run.
func (c *Client) Restored(ctx context.Context) ([]Container, error) {
	ctx, cancel := short(ctx)
	defer cancel()
	answer, err := cri.NewRuntimeServiceClient(c.conn).ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
		State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		return nil, fmt.Errorf("listing containers: %w", err)
	}
	var restored []Container
	for _, one := range containersOf(answer.GetContainers()) {
		if one.RestoredFrom != "" {
			restored = append(restored, one)
		}
	}
	return restored, nil
}

func containersOf(list []*cri.Container) []Container {
	out := make([]Container, 0, len(list))
	for _, one := range list {
		made := Container{Name: one.GetLabels()[labelContainer], ID: one.GetId()}
		if annotations := one.GetAnnotations(); annotations["restored"] == "true" {
			made.RestoredFrom = annotations["checkpointImage"]
		}
		out = append(out, made)
	}
	return out
}

// Memory is how much of it a container works with, and Written what it wrote to its file system, in bytes.
func (c *Client) Memory(ctx context.Context, id string) (memory, written int64, err error) {
	ctx, cancel := short(ctx)
	defer cancel()
	answer, err := cri.NewRuntimeServiceClient(c.conn).ContainerStats(ctx, &cri.ContainerStatsRequest{ContainerId: id})
	if err != nil {
		return 0, 0, fmt.Errorf("asking how large container %s is: %w", id, err)
	}
	stats := answer.GetStats()
	return int64(stats.GetMemory().GetWorkingSetBytes().GetValue()), int64(stats.GetWritableLayer().GetUsedBytes().GetValue()), nil
}

// Pause stops all of a container's processes where they are. One that is paused stays so.
func (c *Client) Pause(ctx context.Context, id string) error {
	if paused, err := c.Paused(ctx, id); err != nil || paused {
		return err
	}
	ctx, cancel := short(ctx)
	defer cancel()
	var err error
	for range pauseAttempts {
		if _, err = tasks.NewTasksClient(c.conn).Pause(ctx, &tasks.PauseTaskRequest{ContainerID: id}); err == nil {
			return nil
		}
		if is(err, codes.NotFound) || ctx.Err() != nil {
			break
		}
	}
	return fmt.Errorf("pausing container %s: %w", id, err)
}

// pauseAttempts is how often a container is told to pause. On a busy machine runc gives up on a control group that does not
// freeze within its attempts, and unfreezes it again ("unable to freeze", fs/freezer.go of opencontainers/cgroups). A further
// call begins these attempts anew.
const pauseAttempts = 3

// Resume lets a container go on. One that runs, or is gone, is left.
func (c *Client) Resume(ctx context.Context, id string) error {
	if paused, err := c.Paused(ctx, id); err != nil || !paused {
		return err
	}
	ctx, cancel := short(ctx)
	defer cancel()
	_, err := tasks.NewTasksClient(c.conn).Resume(ctx, &tasks.ResumeTaskRequest{ContainerID: id})
	if err != nil && !is(err, codes.NotFound) {
		return fmt.Errorf("resuming container %s: %w", id, err)
	}
	return nil
}

// Kill ends a container with SIGKILL, also one that is paused, by the call that the kubelet has containerd make at the end of a grace
// period. runc signals the first process, and then unfreezes the group (Container.Signal of libcontainer): the others may run until
// the kernel has freed the memory of the first and kills them with its PID namespace. One that is gone is left.
func (c *Client) Kill(ctx context.Context, id string) error {
	ctx, cancel := short(ctx)
	defer cancel()
	_, err := tasks.NewTasksClient(c.conn).Kill(ctx, &tasks.KillRequest{ContainerID: id, Signal: uint32(unix.SIGKILL)})
	if err != nil && !is(err, codes.NotFound) {
		return fmt.Errorf("killing container %s: %w", id, err)
	}
	return nil
}

// Paused tells whether a container is; one that is gone is not.
func (c *Client) Paused(ctx context.Context, id string) (bool, error) {
	state, err := c.status(ctx, id)
	return state == task.Status_PAUSED || state == task.Status_PAUSING, err
}

// Runs tells whether a container's processes are at work; of one that is paused, has ended or is gone they are not.
func (c *Client) Runs(ctx context.Context, id string) (bool, error) {
	state, err := c.status(ctx, id)
	return state == task.Status_RUNNING, err
}

// status of a container's processes: stopped where there are none. That the runtime does not know it, as its shim did not answer in time, is an error.
func (c *Client) status(ctx context.Context, id string) (task.Status, error) {
	ctx, cancel := short(ctx)
	defer cancel()
	answer, err := tasks.NewTasksClient(c.conn).Get(ctx, &tasks.GetRequest{ContainerID: id})
	state := answer.GetProcess().GetStatus()
	switch {
	case is(err, codes.NotFound):
		return task.Status_STOPPED, nil
	case err != nil:
		return state, fmt.Errorf("asking what container %s does: %w", id, err)
	case state == task.Status_UNKNOWN:
		return state, fmt.Errorf("asking what container %s does: containerd does not know", id)
	}
	return state, nil
}
