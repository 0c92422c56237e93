package environment

import (
	"bytes"
	"context"
	"os"
	"os/exec"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
)

// ExpectCommand runs the command line against the cluster, as its administrator, and returns what it
// prints.
func (env *Environment) ExpectCommand(args ...string) string {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(env, outcomeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, env.command, args...)
	cmd.Env = append(withoutKubeconfig(os.Environ()), "KUBECONFIG="+env.Plane.Kubeconfig())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	Expect(cmd.Run()).To(Succeed(), "mainspring %q: %s", args, &stderr)
	return stdout.String()
}
