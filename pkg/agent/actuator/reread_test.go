package actuator

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Files that are kept open are read to their end however many CPUs they have a number for.
func TestFilesWithManyNumbersAreReadWhole(t *testing.T) {
	dir := t.TempDir()
	for _, cpus := range []int{1, 4096 / 7, 8192} {
		want := strings.TrimSpace(strings.Repeat("950000 ", cpus))
		must(t, os.WriteFile(filepath.Join(dir, rtMulti), []byte(want+"\n"), 0o600))
		f, err := linux{}.open(dir)
		must(t, err)
		f.keep(rtMulti)
		if got, err := f.read(rtMulti); err != nil || got != want {
			t.Errorf("%d CPUs: %d bytes, %v; want %d", cpus, len(got), err, len(want))
		}
		must(t, f.close())
	}
}
