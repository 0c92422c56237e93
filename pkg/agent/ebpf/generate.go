package ebpf

// The programs are compiled by `make generate`, by the bpf2go of the library's version. Version 3 of the
// instruction set has the 32-bit compare-and-swap; kernels have it since 5.12.
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -cflags "-mcpu=v3 -Wall -Werror" budget ../../../bpf/budget.bpf.c
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -cflags "-mcpu=v3 -Wall -Werror" jobs ../../../bpf/jobs.bpf.c
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -cflags "-mcpu=v3 -Wall -Werror" runqueue ../../../bpf/runqueue.bpf.c
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -cflags "-mcpu=v3 -Wall -Werror" dlThrottle ../../../bpf/dlthrottle.bpf.c
