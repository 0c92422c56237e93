package environment

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions

	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// RaceVariable is the environment variable that, set to 1, builds the controller with the race detector.
const RaceVariable = "MAINSPRING_RACE"

// buildTimeout bounds building the tools on a machine that has never built them.
const buildTimeout = 20 * time.Minute

// prepared is what one process builds for all.
type prepared struct {
	Tools      toolchain.Paths
	Controller string
}

// Prepare builds what every process of the suite runs. Ginkgo calls it in the first process and
// hands what it returns to Start in each.
func Prepare(ctx context.Context) []byte {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	tools, err := toolchain.Ensure(ctx, GinkgoWriter, toolchain.Etcd, toolchain.KubeAPIServer,
		toolchain.KubeControllerManager, toolchain.KubeScheduler, toolchain.Kwok)
	Expect(err).NotTo(HaveOccurred())
	dir, err := os.MkdirTemp("", "mainspring-controller-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, dir)
	binary, err := buildController(ctx, dir)
	Expect(err).NotTo(HaveOccurred())
	data, err := json.Marshal(prepared{Tools: tools, Controller: binary})
	Expect(err).NotTo(HaveOccurred())
	return data
}

// buildController builds cmd/controller into dir.
func buildController(ctx context.Context, dir string) (string, error) {
	binary := filepath.Join(dir, "controller")
	args := []string{"build", "-o", binary}
	if os.Getenv(RaceVariable) == "1" {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "github.com/mainspring-rt/mainspring/cmd/controller")...)
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN=auto")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the controller: %w\n%s", err, out)
	}
	return binary, nil
}
