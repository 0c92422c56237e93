package environment

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
)

// ExpectCommand runs the command line against the cluster, as its administrator, and returns what it
// prints.
func (env *Environment) ExpectCommand(args ...string) string {
	GinkgoHelper()
	return env.run(env.command, args)
}

// ExpectKubectl runs kubectl in the same way.
func (env *Environment) ExpectKubectl(args ...string) string {
	GinkgoHelper()
	return env.run(env.kubectl, args)
}

func (env *Environment) run(program string, args []string) string {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(env, eventuallyTimeout)
	defer cancel()
	defer env.answers.forget()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(withoutKubeconfig(os.Environ()), "KUBECONFIG="+env.Plane.Kubeconfig())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	Expect(cmd.Run()).To(Succeed(), "%s %q: %s%s", filepath.Base(program), args, &stdout, &stderr)
	return stdout.String()
}
