package actuator

import (
	"os"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

func TestMain(m *testing.M) {
	sampling.RapidChecks(25, 100)
	os.Exit(m.Run())
}
