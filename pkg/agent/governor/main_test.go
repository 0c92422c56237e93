package governor_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// checks is how many random histories each property draws; -rapid.checks overrides it.
const checks = "2000"

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		if err := flag.Set("rapid.checks", checks); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}
