package privileged

import (
	"os"
	"path/filepath"
	"testing"
)

func TestGroupsOfDeadTestsAreRemoved(t *testing.T) {
	cgroups, proc := t.TempDir(), t.TempDir()
	stays := map[string]bool{
		"cpu/mainspring-test-7/pod/c": false, "cpuset/mainspring-test-7": false, "mainspring-test-7/kubepods": false,
		"cpu/mainspring-test-8/pod": true, "cpu/kubepods/mainspring-test-7": true, "cpu/mainspring-test-x": true,
	}
	for dir := range stays {
		if err := os.MkdirAll(filepath.Join(cgroups, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(proc, "8"), 0o755); err != nil {
		t.Fatal(err)
	}
	removeLeftover(cgroups, proc)
	for dir, want := range stays {
		if _, err := os.Stat(filepath.Join(cgroups, dir)); (err == nil) != want {
			t.Errorf("%s: %v; want it to stay %v", dir, err, want)
		}
	}
	for _, dir := range []string{"cpu/mainspring-test-7", "mainspring-test-7"} {
		if _, err := os.Stat(filepath.Join(cgroups, dir)); err == nil {
			t.Errorf("%s stays", dir)
		}
	}
}
