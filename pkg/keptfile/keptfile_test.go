package keptfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/keptfile"
)

func TestAFileIsReadWholeOrNotAtAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if _, err := keptfile.Read(path, 4); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v; want that there is none", err)
	}
	for _, text := range []string{"", "123", "1234"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if data, err := keptfile.Read(path, 4); err != nil || string(data) != text {
			t.Errorf("%q reads as %q: %v", text, data, err)
		}
	}
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := keptfile.Read(path, 4); !errors.Is(err, keptfile.ErrTooLong) || data != nil {
		t.Errorf("it reads as %q: %v; want it refused", data, err)
	}
}

// A file of a terabyte, of which nothing is on the disk: reading it whole would end the process.
func TestAFileOfATerabyteIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Skipf("SKIPPED: this test needs a file system that holds such a file: %v", err)
	}
	if _, err := keptfile.Read(path, 1<<20); !errors.Is(err, keptfile.ErrTooLong) {
		t.Errorf("error %v; want it refused", err)
	}
}
