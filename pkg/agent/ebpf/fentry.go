package ebpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// fentryTarget is a function of every kernel that has deadline servers or SCHED_DEADLINE.
const fentryTarget = "update_curr_dl"

// Fentry says why no program can be put at the entry of a kernel function; nil when one can. Nothing of ours is:
// kernels refuse it more often than they allow it.
func Fentry() error {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "fentry_probe", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFEntry, AttachTo: fentryTarget,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}, License: "Dual BSD/GPL",
	})
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("loading a program at the entry of %s: %w", fentryTarget, ErrPermission)
	}
	if err != nil {
		return fmt.Errorf("loading a program at the entry of %s: %w", fentryTarget, err)
	}
	return program.Close()
}
