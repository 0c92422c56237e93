// Command hollow plays the node agents of a cluster's simulated nodes until it is told to stop.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
	"github.com/mainspring-rt/mainspring/pkg/hollow"
)

// settings are the flags.
type settings struct {
	kubeconfig, catalogueFile string
	heartbeat                 time.Duration
	healthPort, metricsPort   int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	// One line, whatever the error is made of, so that the last line of the log tells the reason.
	fmt.Fprintf(os.Stderr, "mainspring-hollow: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	os.Exit(1)
}

func parse(args []string) (settings, error) {
	s := settings{}
	flags := flag.NewFlagSet("hollow", flag.ContinueOnError)
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "Path of the kubeconfig. Empty: the in-cluster configuration")
	flags.StringVar(&s.catalogueFile, "catalogue-file", "", "Catalogue of instance types, as the controller's. Empty: the embedded one")
	flags.DurationVar(&s.heartbeat, "heartbeat", 5*time.Second, "How often each agent shows that it lives")
	flags.IntVar(&s.healthPort, "health-probe-port", 8081, "Port of /healthz and /readyz; 0: off")
	flags.IntVar(&s.metricsPort, "metrics-port", 0, "Port of /metrics, plain HTTP; 0: off")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if s.heartbeat < time.Second {
		return s, fmt.Errorf("--heartbeat %s: want at least 1s", s.heartbeat)
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("argument %q: want none", flags.Arg(0))
	}
	return s, nil
}

func run(ctx context.Context, args []string) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	ctrl.SetLogger(zap.New())
	klog.SetLogger(ctrl.Log)
	machines, err := catalogue.Load(s.catalogueFile)
	if err != nil {
		return err
	}
	manager, err := newManager(s)
	if err != nil {
		return err
	}
	if err := hollow.Index(ctx, manager.GetFieldIndexer()); err != nil {
		return err
	}
	fleet := hollow.New(hollow.Options{
		Client: manager.GetClient(), Cache: manager.GetCache(), Clock: clock.RealClock{},
		Recorder: manager.GetEventRecorder("mainspring-hollow"), Catalogue: machines, Heartbeat: s.heartbeat,
	})
	if err := manager.Add(fleet); err != nil {
		return fmt.Errorf("adding the agents: %w", err)
	}
	return manager.Start(ctrl.LoggerInto(ctx, ctrl.Log))
}

// newManager makes what the agents run in: client, cache, probes, metrics.
func newManager(s settings) (ctrl.Manager, error) {
	config, err := restConfig(s.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	config.QPS = -1 // the API server's own fairness decides
	scheme, err := hollow.Scheme()
	if err != nil {
		return nil, err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Cache: hollow.CacheOptions(),
		HealthProbeBindAddress: address(s.healthPort), Metrics: server.Options{BindAddress: address(s.metricsPort)},
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	synced := func(r *http.Request) error {
		if !manager.GetCache().WaitForCacheSync(r.Context()) {
			return errors.New("the cache is not filled yet")
		}
		return nil
	}
	return manager, errors.Join(manager.AddHealthzCheck("ping", healthz.Ping), manager.AddReadyzCheck("cache", synced))
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}

// address of a port; "0" switches an endpoint off.
func address(port int) string {
	if port == 0 {
		return "0"
	}
	return fmt.Sprintf(":%d", port)
}
