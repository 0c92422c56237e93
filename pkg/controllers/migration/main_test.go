package migration_test

import (
	"flag"
	"os"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
)

// atOnce is how many towns stand side by side: most of the time of each it waits for the API server.
const atOnce = "6"

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", atOnce) // it is known to be a number
	}
	os.Exit(apiserver.Main(m))
}
