package localplane

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// Options describe a plane. The zero value of every field but Bin is usable.
type Options struct {
	// Dir receives data, keys, kubeconfigs and logs, and is created when missing. A plane that
	// is started on the Dir of a stopped one continues with its data. Empty means a temporary
	// directory that Stop removes.
	Dir string
	// Progress receives lines for people. Nil means none.
	Progress io.Writer
	// Bin holds the paths of the programs, from toolchain.Ensure. Needed are etcd and
	// kube-apiserver, and those of the components below.
	Bin toolchain.Paths
	// Scheduler, ControllerManager and Kwok add kube-scheduler, kube-controller-manager and the
	// kwok controller, which plays the kubelet of every Node with the label
	// kwok.x-k8s.io/node=fake.
	Scheduler, ControllerManager, Kwok bool
	// NodeMonitorGracePeriod is how long a Node may stay silent before its Ready condition
	// becomes Unknown: whole seconds, at least 4 s, default 40 s. Simulated kubelets renew
	// their lease at least four times in it.
	NodeMonitorGracePeriod time.Duration
	// APIServerArgs and ControllerManagerArgs are added to the arguments of kube-apiserver and kube-controller-manager.
	APIServerArgs, ControllerManagerArgs []string
}

// WithoutFairness is an argument of kube-apiserver for planes with a few clients that trust each other, as those of tests: it answers in the order of arrival,
// up to its bounds on requests in flight. Fairness between clients takes a tenth of its CPU time.
const WithoutFairness = "--enable-priority-and-fairness=false"

const (
	defaultGracePeriod = 40 * time.Second
	minGracePeriod     = 4 * time.Second
)

// Tools lists the programs that a plane with these options runs.
func (o Options) Tools() []toolchain.Tool {
	tools := []toolchain.Tool{toolchain.Etcd, toolchain.KubeAPIServer}
	if o.ControllerManager {
		tools = append(tools, toolchain.KubeControllerManager)
	}
	if o.Scheduler {
		tools = append(tools, toolchain.KubeScheduler)
	}
	if o.Kwok {
		tools = append(tools, toolchain.Kwok)
	}
	return tools
}

// withDefaults checks the options and fills in what is unset, but Dir.
func (o Options) withDefaults() (Options, error) {
	if o.NodeMonitorGracePeriod == 0 {
		o.NodeMonitorGracePeriod = defaultGracePeriod
	}
	if o.NodeMonitorGracePeriod < minGracePeriod || o.NodeMonitorGracePeriod%time.Second != 0 {
		return o, fmt.Errorf("option NodeMonitorGracePeriod is %s: want whole seconds, at least %s", o.NodeMonitorGracePeriod, minGracePeriod)
	}
	for _, tool := range o.Tools() {
		if o.Bin[tool] == "" {
			return o, fmt.Errorf("option Bin has no path for %s: pass the paths of toolchain.Ensure(ctx, progress, options.Tools()...)", tool)
		}
	}
	return o, nil
}

// files lays out a plane's directory.
type files struct{ dir string }

func (f files) data() string                  { return filepath.Join(f.dir, "etcd") }
func (f files) pki(name string) string        { return filepath.Join(f.dir, "pki", name) }
func (f files) log(component string) string   { return filepath.Join(f.dir, "logs", component+".log") }
func (f files) kubeconfig(user string) string { return filepath.Join(f.dir, "kubeconfigs", user) }
func (f files) config(name string) string     { return filepath.Join(f.dir, "config", name) }
func (f files) lockPath() string              { return filepath.Join(f.dir, "lock") }

func (f files) create() error {
	for _, sub := range []string{"", "pki", "logs", "kubeconfigs", "config"} {
		if err := os.MkdirAll(filepath.Join(f.dir, sub), 0o700); err != nil {
			return fmt.Errorf("creating the plane's directory: %w", err)
		}
	}
	return nil
}
