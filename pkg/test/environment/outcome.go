package environment

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"time"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
)

// outcomeTimeout bounds how long a controller that cannot work may take to say so and end.
const outcomeTimeout = time.Minute

// Outcome is how a controller ended that was not meant to run for long.
type Outcome struct {
	// Code is the exit code; -1 when it had to be killed.
	Code int
	// Stdout and Stderr are all it wrote there.
	Stdout, Stderr string
}

// ControllerOutcome runs a further controller with the kubeconfig, ports of its own and these flags,
// until it ends by itself.
func (env *Environment) ControllerOutcome(kubeconfig string, flags ...string) Outcome {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(env, outcomeTimeout)
	defer cancel()
	other, err := newProgram(ctx, env.Controller.binary, kubeconfig, env.dir)
	Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(ctx, other.binary, other.args(flags)...)
	cmd.Env = other.environ
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		Expect(err).NotTo(HaveOccurred(), "running the controller")
	}
	return Outcome{Code: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
}
