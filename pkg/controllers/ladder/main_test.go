package ladder_test

import (
	"os"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }
