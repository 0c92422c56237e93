package localplane_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// bin holds the programs of every test's plane.
var bin toolchain.Paths

func TestMain(m *testing.M) {
	if os.Getenv(parentEnv) != "" {
		os.Exit(runParent())
	}
	everything := localplane.Options{Scheduler: true, ControllerManager: true, Kwok: true}
	paths, err := toolchain.Ensure(context.Background(), os.Stderr, everything.Tools()...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "providing the control plane's programs:", err)
		os.Exit(1)
	}
	bin = paths
	os.Exit(m.Run())
}

// parentEnv makes this test binary start a plane and wait to be killed.
const parentEnv = "LOCALPLANE_TEST_PARENT"

func runParent() int { return 0 }
