package main

import (
	"errors"
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

// secondTriesFile lists the tests that may be tried twice.
const secondTriesFile = "test/second-tries.yaml"

// testID names a top-level test of a package, or a spec of a suite.
type testID struct {
	Where   string // the package below the module, or the suite
	Name    string
	Package string // what to run again: the import path, or the suite
}

func (t testID) String() string {
	if t.Name == "" {
		return t.Where + " outside of its tests"
	}
	return t.Where + " " + t.Name
}

// secondTries are the tests that may be tried twice, and why. A test belongs there only when it measures the kernel's scheduling, which a
// hypervisor that takes a core away disturbs.
type secondTries []secondTry

// secondTry is an entry of the file.
type secondTry struct {
	// Where is the package below the module, or the name of a suite.
	Where string `json:"where"`
	// Test is the name of a top-level test, or the whole text of a spec.
	Test string `json:"test"`
	// Reason says what disturbs it.
	Reason string `json:"reason"`
}

// readSecondTries reads the list. An entry without a reason is an error.
func readSecondTries(path string) (secondTries, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the list of second tries: %w", err)
	}
	var list secondTries
	if err := yaml.UnmarshalStrict(content, &list); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	var errs []error
	for i, entry := range list {
		if entry.Where == "" || entry.Test == "" || entry.Reason == "" {
			errs = append(errs, fmt.Errorf("%s: entry %d needs where, test and reason: %+v", path, i+1, entry))
		}
	}
	return list, errors.Join(errs...)
}

// allow splits failed tests into those to try again, by what is to be run, and the descriptions of those that may not be.
func (l secondTries) allow(failed []testID) (again map[string][]testID, refused []string) {
	again = map[string][]testID{}
	for _, t := range failed {
		if l.has(t) {
			again[t.Package] = append(again[t.Package], t)
		} else {
			refused = append(refused, t.String())
		}
	}
	return again, refused
}

func (l secondTries) has(t testID) bool {
	for _, entry := range l {
		if entry.Where == t.Where && entry.Test == t.Name {
			return true
		}
	}
	return false
}
