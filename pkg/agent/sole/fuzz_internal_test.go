package sole

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// FuzzHolder: whatever a lock holds, a process is named only by a number that one can have.
func FuzzHolder(f *testing.F) {
	for _, seed := range []string{"4711\n", "0", "-1", "+7", "99999999999999999999", "4711" + strings.Repeat(" ", 40) + "x", "?", ""} {
		f.Add([]byte(seed))
	}
	path := filepath.Join(f.TempDir(), "lock")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = file.Close() }()
		said := holder(file)
		number, named := strings.CutPrefix(said, "process ")
		if pid, err := strconv.ParseInt(number, 10, 32); named && (err != nil || pid <= 0 || !strings.Contains(string(text), number)) || !named && said != "another process" {
			t.Fatalf("%q is held by %q", text, said)
		}
	})
}
