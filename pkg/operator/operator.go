// Package operator turns a command line and a kubeconfig into a running controller: options,
// preflight, manager, readiness, and the cloud provider that was asked for.
//
// It does what Karpenter's own NewOperator does, on the same options and with the same indexes, but
// returns errors instead of panicking and serves metrics only to callers that the cluster
// authenticates and authorises; NewOperator leaves no seam for either.
package operator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/awslabs/operatorpkg/controller"
	"github.com/awslabs/operatorpkg/serrors"
	"github.com/go-logr/zapr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeoverlay"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator"
	"sigs.k8s.io/karpenter/pkg/operator/logging"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/state/prediction"

	"github.com/mainspring-rt/mainspring/pkg/controllers"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/webhooks/certs"
)

// Name is the field manager, event source and user agent of the controller.
const Name = "mainspring"

// Run assembles the controller from args and the environment and runs it until ctx ends. It
// returns nil after a graceful stop, a usage error (IsUsageError) before anything was contacted, or
// what stopped it.
func Run(ctx context.Context, args []string) error {
	base, own, err := parseOptions(context.Background(), args, os.Stdout)
	if err != nil {
		return err
	}
	base, err = withLogger(base)
	if err != nil {
		return err
	}
	config, err := restConfig(own.Kubeconfig, options.FromContext(base))
	if err != nil {
		return err
	}
	if err := preflight(ctx, config, options.FromContext(base), own.CloudProvider); err != nil {
		return err
	}
	certificates := &certs.Server{} // of the webhooks, and of the metrics
	op, err := newOperator(base, config, own, certificates)
	if err != nil {
		return err
	}
	provider, err := newProvider(base, op, own)
	if err != nil {
		return err
	}
	resources, err := own.Migration.resources(op)
	if err != nil {
		return err
	}
	store := state.New(state.Options{Granularity: own.RT.BudgetGranularity.Microseconds(), Clock: op.Clock})
	set, err := controllers.New(base, op, provider.CloudProvider, store, controllers.Options{
		Realtime: own.RT.runtime(), Pressure: own.Pressure.Options, Repack: own.Repack.RepackOptions, Queue: own.Queue.queue(), Lease: queueLease(options.FromContext(base)),
		Resources: resources, CalibrationTimeout: own.RT.CalibrationTimeout, Migrations: own.Migration.migrations(own.Inventory.SecretNamespace, own.Webhooks.Port != 0),
	})
	if err != nil {
		return err
	}
	provider.launchAtPricesOf(set.CloudProvider)
	if err := register(base, op.Manager, append(set.Controllers, provider.controllers...)); err != nil {
		return err
	}
	if err := addReadiness(op.Manager, leading(base, op.Manager), set.Cluster, store); err != nil {
		return err
	}
	if err := addWebhooks(base, op.Manager, own, store, op.Clock, certificates); err != nil {
		return err
	}
	if err := addOverruns(base, op.Manager, own, store, clock.RealClock{}); err != nil {
		return err
	}
	// The manager's controllers take their values (options, logger) from its BaseContext; this one
	// only says when to stop.
	if err := op.Manager.Start(log.IntoContext(ctx, log.FromContext(base))); err != nil {
		return fmt.Errorf("running controllers: %w", err)
	}
	return nil
}

func register(ctx context.Context, mgr manager.Manager, list []controller.Controller) error {
	for _, c := range list {
		if err := c.Register(ctx, mgr); err != nil {
			return fmt.Errorf("registering controller %T: %w", c, err)
		}
	}
	return nil
}

// withLogger builds Karpenter's JSON logger, whose own constructor panics where it cannot write.
func withLogger(ctx context.Context) (context.Context, error) {
	zap, err := logging.DefaultZapConfig(ctx, "controller").Build()
	if err != nil {
		return nil, &UsageError{fmt.Errorf("opening --log-output-paths or --log-error-output-paths: %w", err)}
	}
	logger := serrors.NewLogger(zapr.NewLogger(logging.WithCommit(zap).Named("controller")))
	log.SetLogger(logger)
	klog.SetLogger(logger)
	return log.IntoContext(ctx, logger), nil
}

// restConfig reads the kubeconfig, or the in-cluster configuration where path is empty, with the
// request rate that the options allow.
func restConfig(path string, o *options.Options) (*rest.Config, error) {
	config, err := loadConfig(path)
	if err != nil {
		return nil, err
	}
	config.QPS = float32(o.KubeClientQPS)
	config.Burst = o.KubeClientBurst
	config.UserAgent = fmt.Sprintf("%s/%s", Name, operator.Version)
	return config, nil
}

func loadConfig(path string) (*rest.Config, error) {
	if path == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, &UsageError{fmt.Errorf("no --kubeconfig or KUBECONFIG given, and not in a cluster: %w", err)}
		}
		return config, nil
	}
	rules := &clientcmd.ClientConfigLoadingRules{Precedence: filepath.SplitList(path)}
	if len(rules.Precedence) == 1 {
		rules = &clientcmd.ClientConfigLoadingRules{ExplicitPath: path}
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, &UsageError{fmt.Errorf("reading kubeconfig %q: %w", path, err)}
	}
	return config, nil
}

// newOperator fills Karpenter's Operator around our own manager.
func newOperator(ctx context.Context, config *rest.Config, own *Options, certificates *certs.Server) (*operator.Operator, error) {
	if limit := options.FromContext(ctx).MemoryLimit; limit > 0 {
		debug.SetMemoryLimit(int64(float64(limit) * 0.9))
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building the Kubernetes client: %w", err)
	}
	mgr, err := newManager(ctx, config, own, certificates)
	if err != nil {
		return nil, err
	}
	if err := metrics.Register(crmetrics.Registry); err != nil {
		return nil, err
	}
	return &operator.Operator{
		Manager:             mgr,
		KubernetesInterface: kube,
		EventRecorder:       events.NewRecorder(mgr.GetEventRecorderFor(Name)), //nolint:staticcheck // Karpenter's recorder takes this interface.
		Clock:               clock.RealClock{},
		InstanceTypeStore:   nodeoverlay.NewInstanceTypeStore(),
		PredictionStore:     prediction.NewStore(),
	}, nil
}
