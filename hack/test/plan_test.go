package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// inRoot runs the test where users run the command.
func inRoot(t *testing.T) {
	t.Helper()
	t.Chdir(filepath.Join("..", ".."))
}

// A suite that no lane runs would be missed in silence.
func TestEverySuiteHasALane(t *testing.T) {
	inRoot(t)
	planned := []string{nodeSuite}
	for _, l := range suiteLanes {
		planned = append(planned, l.suites...)
	}
	slices.Sort(planned)
	entries, err := os.ReadDir("test/suites")
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	for _, e := range entries {
		there = append(there, e.Name())
	}
	if !slices.Equal(planned, there) {
		t.Errorf("lanes run %v; test/suites has %v", planned, there)
	}
}

// Each package with tests is in one step, and in one only.
func TestEveryPackageIsTestedOnce(t *testing.T) {
	inRoot(t)
	sequential, concurrent, err := splitPackages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for pkg, races := range map[string]bool{"./pkg/rt": false, "./pkg/process": true, "./pkg/state": true, "./pkg/controllers/migration": false} {
		if slices.Contains(concurrent, pkg) != races || slices.Contains(sequential, pkg) == races {
			t.Errorf("%s is tested with the race detector: %t, want %t", pkg, !races, races)
		}
	}
	tested := map[string]int{}
	for _, pkg := range slices.Concat(sequential, concurrent, kernelPackages) {
		tested[pkg]++
	}
	files := 0
	err = filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", "out", "tools", filepath.Join("test", "suites")}, path):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		files++
		if pkg := "./" + filepath.Dir(path); tested[pkg] != 1 {
			t.Errorf("%s is tested %d times", pkg, tested[pkg])
		}
		return nil
	})
	if err != nil || files < 100 {
		t.Fatalf("%d files with tests (%v)", files, err)
	}
}

func TestOptionsThatAreRefused(t *testing.T) {
	inRoot(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"e2e", "--suite", "nowhere"}, `no suite "nowhere"`},
		{[]string{"e2e", "ladder"}, `unknown arguments ["ladder"]`},
		{[]string{"everything"}, `"everything" is nothing to test`},
	} {
		o, err := parse(c.args)
		if err == nil {
			_, _, err = o.plan()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
}

// The list that is committed can be read, and each of its packages and suites is there.
func TestSecondTriesThatAreCommitted(t *testing.T) {
	inRoot(t)
	list, err := readSecondTries(secondTriesFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range list {
		if !defines(t, entry) {
			t.Errorf("%s has no test %s", entry.Where, entry.Test)
		}
	}
}

// The race detector sees the tests that the plan names: they are there.
func TestTestsOfTheRaceDetectorAreThere(t *testing.T) {
	inRoot(t)
	for pkg, tests := range raceTests {
		for _, name := range tests {
			if !defines(t, secondTry{Where: strings.TrimPrefix(pkg, "./"), Test: name}) {
				t.Errorf("%s has no test %s", pkg, name)
			}
		}
	}
}

// defines reports whether a file of the package, or of the suite, names the test.
func defines(t *testing.T, entry secondTry) bool {
	t.Helper()
	dir, name := entry.Where, "func "+entry.Test+"("
	if !strings.Contains(dir, "/") { // the text of a spec is put together from its containers' and its own
		dir, name = "test/suites/"+dir, entry.Test[strings.LastIndexAny(entry.Test, ":,")+1:]
	}
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(content), strings.TrimSpace(name)) {
			return true
		}
	}
	return false
}

// Tests that have a step of their own are left out of the step of the other sequential packages, by their names: one of the same name elsewhere would not
// run, and one that is named and does not exist would prove nothing.
func TestTestsThatAreRacedAloneAreWhereTheyAreNamed(t *testing.T) {
	inRoot(t)
	wanted := map[string]string{}
	for pkg, names := range raceTests {
		for _, name := range names {
			wanted[name] = filepath.Clean(pkg)
		}
	}
	found := map[string][]string{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, match := range declared.FindAllStringSubmatch(string(content), -1) {
			if wanted[match[1]] != "" {
				found[match[1]] = append(found[match[1]], filepath.Dir(path))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, pkg := range wanted {
		if !slices.Equal(found[name], []string{pkg}) {
			t.Errorf("%s is in %v, want %s alone", name, found[name], pkg)
		}
	}
}
