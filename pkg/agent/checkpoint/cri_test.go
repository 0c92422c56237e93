package checkpoint_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint"
	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint/containerd"
	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint/kubelet"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// Where the runtime does not tell how large a container is, the kernel does.
func TestTheKernelTellsHowLargeAContainerIs(t *testing.T) {
	unserved, err := containerd.New(filepath.Join(t.TempDir(), "no.sock"), "overlayfs", clocktesting.NewFakeClock(time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unserved.Close() })
	d := checkpoint.CRI{Client: unserved, Held: func(pod types.UID, id string) (int64, error) {
		if pod != "pod" || id != "id" {
			t.Errorf("asked for container %s of pod %s", id, pod)
		}
		return 42, nil
	}}
	if memory, written, err := d.Memory(t.Context(), "pod", "id"); memory != 42 || written != 0 || err != nil {
		t.Errorf("%d, %d, %v", memory, written, err)
	}
	d.Held = func(types.UID, string) (int64, error) { return 0, os.ErrNotExist }
	if _, _, err := d.Memory(t.Context(), "pod", "id"); err == nil {
		t.Error("nobody knows, and it is not told")
	}
}

// silentNode is a node whose runtime and kubelet do not answer.
func silentNode(t *testing.T, criu string) checkpoint.CRI {
	t.Helper()
	runtime, err := containerd.New(filepath.Join(t.TempDir(), "no.sock"), "overlayfs", clocktesting.NewFakeClock(time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = runtime.Close() })
	silent, err := kubelet.New(&rest.Config{}, "127.0.0.1:1", "")
	if err != nil {
		t.Fatal(err)
	}
	return checkpoint.CRI{Client: runtime, Kubelet: silent, Criu: criu}
}

// A status with a longer text than the API server takes is refused as a whole, and the node counts as dead.
func TestNoProgramsWordIsTooLongForTheStatus(t *testing.T) {
	criu := filepath.Join(t.TempDir(), "criu")
	script := "#!/bin/sh\necho Version: " + strings.Repeat("9", 100) + "\necho " + strings.Repeat("x", 3000) + "\ntest $1 = --version\n"
	if err := os.WriteFile(criu, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	node := silentNode(t, criu)
	node.Kernel = strings.Repeat("6", 200)
	found := node.Capability(t.Context())
	if len(found.Kernel) != 128 || found.CRIU != strings.Repeat("9", 64) || len(found.Message) != 1024 {
		t.Errorf("%+v", found)
	}
}

// askedCriu returns what a node with such a criu can do. The script writes the PID of its child to the file $child, and goes on once it can
// read $seen. The child has to be killed.
func askedCriu(ctx context.Context, t *testing.T, script string, seen func()) v1alpha1.CheckpointCapability {
	t.Helper()
	dir := t.TempDir()
	criu, child, saw := filepath.Join(dir, "criu"), filepath.Join(dir, "child"), filepath.Join(dir, "seen")
	for _, pipe := range []string{child, saw} {
		if err := unix.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(criu, []byte("#!/bin/sh\nchild="+child+" seen="+saw+"\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	pidfd := make(chan int, 1)
	go func() {
		text, _ := os.ReadFile(child) // waits until it is written
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Errorf("looking at the child %q: %v", text, err)
		}
		if err := os.WriteFile(saw, []byte("yes\n"), 0); err != nil {
			t.Errorf("letting criu go on: %v", err)
		}
		seen()
		pidfd <- fd
	}()
	found := silentNode(t, criu).Capability(ctx)
	select {
	case fd := <-pidfd:
		defer unix.Close(fd)
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Minute.Milliseconds())); n != 1 {
			t.Errorf("the child lives on: %d, %v", n, err)
		}
	case <-time.After(time.Minute):
		t.Errorf("criu was not run: %+v", found)
	}
	return found
}

// A criu that does not end is killed with its children. The agent would wait for their output for ever.
func TestACriuThatHangsIsKilled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	found := askedCriu(ctx, t, "sleep 10000 &\necho $! >$child\nread line <$seen\nwait\n", cancel)
	if found.Checkpoints || !strings.Contains(found.Message, "criu for its version: it was killed: context canceled") {
		t.Errorf("%+v", found)
	}
}

// A criu that ends, and whose child holds its output, has answered. The child is killed.
func TestACriuThatLeavesAChild(t *testing.T) {
	script := "[ $1 = check ] && exit 0\nsleep 10000 &\necho Version: 4.2\necho $! >$child\nread line <$seen\n"
	if found := askedCriu(t.Context(), t, script, func() {}); found.CRIU != "4.2" || strings.Contains(found.Message, "criu") {
		t.Errorf("%+v", found)
	}
}

// What is written of one container is not another's, though their names begin alike.
func TestArchivesOfOthersStay(t *testing.T) {
	p := newPair(t)
	p.settle()
	var others []string
	for _, name := range []string{"checkpoint-p_default-app-x-2026-01-02T03:04:05Z.tar", "checkpoint-p_default-side-app-2026-01-02T03:04:05Z.tar"} {
		path := filepath.Join(p.source.config.Archives, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		others = append(others, path)
	}
	p.stage("Discard")
	for _, path := range others {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}
