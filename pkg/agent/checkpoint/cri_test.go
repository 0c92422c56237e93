package checkpoint_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint"
	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint/containerd"
	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint/kubelet"
)

// Where the runtime does not tell how large a container is, the kernel does.
func TestTheKernelTellsHowLargeAContainerIs(t *testing.T) {
	nobody, err := containerd.New(filepath.Join(t.TempDir(), "no.sock"), "overlayfs", clocktesting.NewFakeClock(time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nobody.Close() })
	d := checkpoint.CRI{Client: nobody, Held: func(pod types.UID, id string) (int64, error) {
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

// A status with a longer text than the API server takes is refused as a whole, and the node counts as dead.
func TestNoProgramsWordIsTooLongForTheStatus(t *testing.T) {
	nobody, err := containerd.New(filepath.Join(t.TempDir(), "no.sock"), "overlayfs", clocktesting.NewFakeClock(time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nobody.Close() })
	silent, err := kubelet.New(&rest.Config{}, "127.0.0.1:1", "")
	if err != nil {
		t.Fatal(err)
	}
	criu := filepath.Join(t.TempDir(), "criu")
	script := "#!/bin/sh\necho Version: " + strings.Repeat("9", 100) + "\necho " + strings.Repeat("x", 3000) + "\ntest $1 = --version\n"
	if err := os.WriteFile(criu, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	found := checkpoint.CRI{Client: nobody, Kubelet: silent, Criu: criu, Kernel: strings.Repeat("6", 200)}.Capability(t.Context())
	if len(found.Kernel) != 128 || found.CRIU != strings.Repeat("9", 64) || len(found.Message) != 1024 {
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
