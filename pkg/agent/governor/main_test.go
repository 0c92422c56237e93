package governor_test

import (
	"os"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

func TestMain(m *testing.M) {
	sampling.RapidChecks(500, 2000)
	os.Exit(m.Run())
}
