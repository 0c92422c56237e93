package localplane

import (
	"slices"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

func TestComponentsGetTheProcessorsThatTheVariableNames(t *testing.T) {
	t.Setenv(toolchain.ProcessorsVariable, "")
	if env := environ(); env != nil {
		t.Errorf("without the variable: %q", env)
	}
	t.Setenv(toolchain.ProcessorsVariable, "3")
	if env := environ(); env[len(env)-1] != "GOMAXPROCS=3" || !slices.Contains(env, toolchain.ProcessorsVariable+"=3") {
		t.Errorf("with the variable: %q", env)
	}
}
