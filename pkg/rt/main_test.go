package rt_test

import (
	"flag"
	"os"
	"testing"
)

// checks is how many random cases each property draws; -rapid.checks overrides it.
const checks = "2000"

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		if err := flag.Set("rapid.checks", checks); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
