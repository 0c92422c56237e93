package host

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
)

// maxBTF bounds the kernel's type information; it has about 6 MiB.
const maxBTF = 128 << 20

// BTFNames says which of the names the kernel's type information has; a tracepoint's is "btf_trace_" and its
// name. The error wraps fs.ErrNotExist when the kernel has no type information.
func (h Host) BTFNames(names ...string) (map[string]bool, error) {
	file := h.Sys("kernel", "btf", "vmlinux")
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("reading type information: %w", err)
	}
	if info.Size() > maxBTF {
		return nil, fmt.Errorf("reading type information: %s has %d bytes; want at most %d", file, info.Size(), maxBTF)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading type information: %w", err)
	}
	return ParseBTFNames(data, names...)
}

// ParseBTFNames looks for names in the section of strings, see the kernel's Documentation/bpf/btf.rst.
func ParseBTFNames(data []byte, names ...string) (map[string]bool, error) {
	const magic, headerSize = 0xeb9f, 24
	if len(data) < headerSize || binary.NativeEndian.Uint16(data) != magic {
		return nil, fmt.Errorf("reading type information: no BTF header")
	}
	word := func(at int) uint64 { return uint64(binary.NativeEndian.Uint32(data[at:])) }
	begin := word(4) + word(16) // header's length, strings' offset
	end := begin + word(20)
	if begin > uint64(len(data)) || end > uint64(len(data)) {
		return nil, fmt.Errorf("reading type information: strings from %d to %d of %d bytes", begin, end, len(data))
	}
	has := map[string]bool{}
	for name := range bytes.SplitSeq(data[begin:end], []byte{0}) {
		if slices.Contains(names, string(name)) {
			has[string(name)] = true
		}
	}
	return has, nil
}
