package environment

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// localTimeout bounds one call of mainspring local: two real nodes are up in half a minute on an idle machine.
const localTimeout = 10 * time.Minute

// LocalCluster is one that the command line has started beside the environment's.
type LocalCluster struct {
	// Dir is its directory.
	Dir    string
	Client client.Client

	env        *Environment
	kubeconfig string
}

// ExpectLocalCluster starts a cluster with mainspring local up, with further arguments. It ends with the spec. The machine's cores have one agent each:
// those of the environment's real node must not run.
func (env *Environment) ExpectLocalCluster(args ...string) *LocalCluster {
	GinkgoHelper()
	c := &LocalCluster{Dir: filepath.Join(GinkgoT().TempDir(), "cluster"), env: env}
	c.kubeconfig = filepath.Join(c.Dir, "kubeconfigs", "mainspring-admin")
	c.ExpectCommand(append([]string{
		"local", "up", "--dir=" + c.Dir, "--controller=" + env.Controller.binary, "--hollow=" + env.hollow,
	}, args...)...)
	DeferCleanup(func() { c.ExpectCommand("local", "down", c.Dir) })
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	c.Client, err = client.New(config, client.Options{Scheme: env.Client.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	return c
}

// ExpectCommand runs the command line against the cluster, and returns what it prints.
func (c *LocalCluster) ExpectCommand(args ...string) string {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(c.env, localTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.env.command, args...)
	cmd.Env = append(withoutKubeconfig(os.Environ()), "KUBECONFIG="+c.kubeconfig)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	Expect(cmd.Run()).To(Succeed(), "mainspring %q: %s%s", args, &stdout, &stderr)
	return stdout.String()
}
