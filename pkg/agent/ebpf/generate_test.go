package ebpf_test

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -cflags "-mcpu=v3 -Wall -Werror" decide ../../../bpf/tests/decide.bpf.c
