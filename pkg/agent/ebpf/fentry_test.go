package ebpf_test

import (
	"errors"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

// Whether it is allowed is the kernel's choice; that it is refused is told as a lack of permission.
func TestFentry(t *testing.T) {
	t.Parallel()
	privileged.Require(t, privileged.Root, privileged.BTF)
	if err := ebpf.Fentry(); err != nil && !errors.Is(err, ebpf.ErrPermission) {
		t.Errorf("got %v", err)
	}
}
