package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint/containerd"
	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint/kubelet"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// CRI is the driver of nodes whose kubelet has the checkpoint API (KEP-2008) and whose containerd restores a container that
// is created from an image of such an archive.
type CRI struct {
	*containerd.Client
	Kubelet *kubelet.Client
	// Criu is the path of the program on this machine, to be asked for its version and what it misses; empty: it is not
	// asked, as in a container, where it cannot run.
	Criu string
	// Kernel is the release of this machine's.
	Kernel string
	// Held is how much memory the kernel charges to a container's group, for containers of which the runtime does not tell:
	// containerd 2.3 has no figures of those that it has restored. Nil: the agent cannot ask.
	Held func(pod types.UID, id string) (int64, error)
	// PodAPI tells whether the API server serves KEP-5823's PodCheckpoint. Nil: the agent does not know.
	PodAPI func(ctx context.Context) (bool, error)
}

// Checkpoint implements Driver.
func (d CRI) Checkpoint(ctx context.Context, pod Pod, container string, timeout time.Duration) (string, error) {
	running, err := d.Containers(ctx, pod.UID)
	if err != nil {
		return "", err
	}
	for _, one := range running {
		if one.Name != container {
			continue
		}
		if err := d.NameAnew(ctx, one.ID, imagePrefix); err != nil {
			return "", err
		}
	}
	archive, err := d.Kubelet.Checkpoint(ctx, pod.Namespace, pod.Name, container, timeout)
	if err != nil {
		return "", explainDump(err)
	}
	return archive, nil
}

// Terminating implements Driver.
func (d CRI) Terminating(ctx context.Context, pod types.UID) (listed, terminating bool, err error) {
	return d.Kubelet.Terminating(ctx, pod)
}

// Memory implements Driver.
func (d CRI) Memory(ctx context.Context, pod types.UID, id string) (memory, written int64, err error) {
	memory, written, err = d.Client.Memory(ctx, id)
	if err == nil || d.Held == nil {
		return memory, written, err
	}
	memory, other := d.Held(pod, id)
	if other != nil {
		return 0, 0, errors.Join(err, other)
	}
	return memory, 0, nil
}

// criuTimeout bounds one call of criu, and criuLeft for how long processes that it has left may hold its output after that: criu check forks some, and
// without a bound the agent would wait for them for ever.
const (
	criuTimeout = 20 * time.Second
	criuLeft    = 2 * time.Second
)

// criuAttempts is how often criu is run that does not end in time, as on a machine that is busy.
const criuAttempts = 2

// runCriu runs criu once more where it had to be killed.
func (d CRI) runCriu(ctx context.Context, action string) (text []byte, err error) {
	for range criuAttempts {
		if text, err = d.runCriuOnce(ctx, action); !errors.Is(err, context.DeadlineExceeded) {
			break
		}
	}
	return text, err
}

// runCriuOnce runs criu, and kills what it has forked and left, when it ends or when its time is over.
func (d CRI) runCriuOnce(ctx context.Context, action string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, criuTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.Criu, action)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = criuLeft
	text, err := cmd.CombinedOutput()
	if cmd.Process != nil {
		_ = cmd.Cancel() // no process of the group may be left, which is an error
	}
	switch {
	case errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState.Success(): // another process holds its output
		err = nil
	case err != nil && ctx.Err() != nil:
		err = fmt.Errorf("it was killed: %w", ctx.Err())
	}
	return text, err
}

// The API server takes no status in which these are longer, be it only for what a program says of itself.
const (
	messageLimit = 1024
	versionLimit = 128 // of the runtime and the kernel
	criuLimit    = 64
)

// Capability implements Driver. Both halves are found out apart: a node may be a source and no target.
func (d CRI) Capability(ctx context.Context) v1alpha1.CheckpointCapability {
	found := v1alpha1.CheckpointCapability{Driver: DriverCRI, Kernel: clip(d.Kernel, versionLimit)}
	version, err := d.Version(ctx)
	if err == nil {
		found.Runtime = clip("containerd "+strings.TrimPrefix(version, "v"), versionLimit)
	}
	criu := d.askCriu(ctx, &found)
	out := errors.Join(err, criu, d.Kubelet.Allowed(ctx))
	in := errors.Join(err, criu, d.Restores(ctx))
	found.Checkpoints, found.Restores = out == nil, in == nil
	var why []string
	if out != nil {
		why = append(why, "no checkpoints: "+flat(out))
	}
	if in != nil {
		why = append(why, "no restores: "+flat(in))
	}
	if !found.Checkpoints && !found.Restores {
		found.Driver = DriverNone
		if d.PodAPI != nil {
			if served, err := d.PodAPI(ctx); err == nil && served {
				found.Driver = DriverPod
				why = append(why, "PodCheckpoint is served, which restores on the same node only: it is not used")
			}
		}
	}
	found.Message = clip(strings.Join(why, "; "), messageLimit)
	return found
}

// clip is the beginning of a text, of so many bytes at most and of whole characters.
func clip(text string, most int) string {
	return strings.ToValidUTF8(text[:min(most, len(text))], "")
}

func flat(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

var criuVersion = regexp.MustCompile(`(?m)^Version: (\S+)`)

// criuVersionOf reads what CRIU says of itself; empty where it says nothing of a version.
func criuVersionOf(text []byte) string {
	match := criuVersion.FindSubmatch(text)
	if match == nil {
		return ""
	}
	return clip(string(match[1]), criuLimit)
}

// askCriu asks CRIU itself whether it works on this kernel.
func (d CRI) askCriu(ctx context.Context, found *v1alpha1.CheckpointCapability) error {
	if d.Criu == "" {
		return nil
	}
	text, err := d.runCriu(ctx, "--version")
	if err != nil {
		return fmt.Errorf("asking %s for its version: %w", d.Criu, err)
	}
	found.CRIU = criuVersionOf(text)
	if text, err := d.runCriu(ctx, "check"); err != nil {
		return fmt.Errorf("criu check: %w: %s", err, bytes.TrimSpace(text))
	}
	return nil
}
