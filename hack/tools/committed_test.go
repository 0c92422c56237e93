package main

import (
	"debug/elf"
	"errors"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A program that was built in the root, of tens of megabytes, is easily committed with what belongs there, and then everybody fetches it for ever.
// Those of bpf/ are objects, which are to be there.
func TestNoProgramIsCommitted(t *testing.T) {
	root := filepath.Join("..", "..")
	list, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z").Output()
	if err != nil {
		t.Skipf("this is no checkout: %v", err)
	}
	names := strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00")
	if len(names) < 100 {
		t.Fatalf("only %d files are committed, so this looks at next to nothing", len(names))
	}
	objects := 0
	for _, name := range names {
		switch file, err := elf.Open(filepath.Join(root, name)); {
		case errors.Is(err, fs.ErrNotExist): // it was deleted, and that is not committed yet
		case err != nil: // it is no ELF file
		case file.Type == elf.ET_REL:
			objects++
		default:
			t.Errorf("%s is a program", name)
		}
	}
	if objects == 0 {
		t.Error("no object of bpf/ was found, which are committed: this tells programs from nothing")
	}
}
