package environment

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions

	"github.com/mainspring-rt/mainspring/pkg/test/timing"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// RaceVariable is the environment variable that, set to 1, builds the programs with the race detector.
const RaceVariable = "MAINSPRING_RACE"

// buildTimeout bounds building the tools on a machine that has never built them.
const buildTimeout = 20 * time.Minute

// prepared is what one process builds for all.
type prepared struct {
	Tools    toolchain.Paths
	Programs string // directory
}

func (p prepared) program(name string) string { return filepath.Join(p.Programs, name) }

// Names of the programs, and of their directories below cmd.
const (
	controllerProgram = "controller"
	agentsProgram     = "hollow"
	commandProgram    = "mainspring"
)

// Prepare builds what every process of the suite runs. Ginkgo calls it in the first process and
// hands what it returns to Start in each.
func Prepare(ctx context.Context) []byte {
	GinkgoHelper()
	return build(ctx, nil, controllerProgram, agentsProgram, commandProgram).encode()
}

// build builds the control plane with further tools, and the programs.
func build(ctx context.Context, tools []toolchain.Tool, programs ...string) prepared {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	paths, err := toolchain.Ensure(ctx, GinkgoWriter, append(tools, toolchain.Etcd, toolchain.KubeAPIServer,
		toolchain.KubeControllerManager, toolchain.KubeScheduler, toolchain.Kwok, toolchain.Kubectl)...)
	Expect(err).NotTo(HaveOccurred())
	dir, err := os.MkdirTemp("", "mainspring-programs-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, dir)
	Expect(buildPrograms(ctx, dir, programs...)).To(Succeed())
	return prepared{Tools: paths, Programs: dir}
}

// encode is for Ginkgo, which hands bytes to the other processes.
func (p prepared) encode() []byte {
	GinkgoHelper()
	data, err := json.Marshal(p)
	Expect(err).NotTo(HaveOccurred())
	return data
}

// buildPrograms builds the programs into dir.
func buildPrograms(ctx context.Context, dir string, names ...string) error {
	args := []string{"build", "-o", dir + string(filepath.Separator)}
	if os.Getenv(RaceVariable) == "1" {
		args = append(args, "-race")
	}
	for _, name := range names {
		args = append(args, "github.com/mainspring-rt/mainspring/cmd/"+name)
	}
	defer timing.Start(timing.Build, strings.Join(names, " "))()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN=auto")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", strings.Join(names, " and "), err, out)
	}
	return nil
}
