package image

import (
	"slices"
	"strings"
	"testing"
)

func TestParseLibraries(t *testing.T) {
	const listed = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f2)\n"
	got, err := parseLibraries(listed)
	if want := []string{"/lib/x86_64-linux-gnu/libc.so.6"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if _, err := parseLibraries("\tlibx.so => not found\n"); err == nil || !strings.Contains(err.Error(), "libx.so is not installed") {
		t.Errorf("got %v", err)
	}
}
