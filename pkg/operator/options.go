package operator

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	cliflag "k8s.io/component-base/cli/flag"
	"sigs.k8s.io/karpenter/pkg/operator/options"
)

const (
	// ProviderSimulated is the cloud provider that simulates machines on any cluster that runs kwok.
	ProviderSimulated = "simulated"
	// ProviderInventory is the cloud provider that switches the machines of InventoryMachines.
	ProviderInventory = "inventory"
)

// Options are the settings that Mainspring adds to Karpenter's. Each flag can also be given as an
// environment variable: upper case, dashes as underscores.
type Options struct {
	// Kubeconfig is the path of the kubeconfig; empty means the in-cluster configuration.
	Kubeconfig string
	// CloudProvider names the provider that opens and closes machines.
	CloudProvider string
	// CatalogueFile replaces the embedded catalogue of instance types.
	CatalogueFile string
	// SimulatedRepairToleration is how long a simulated node may be unhealthy before node repair acts.
	SimulatedRepairToleration time.Duration
	// Inventory are the settings of the inventory provider.
	Inventory InventoryOptions
	// MetricsCertDir holds tls.crt and tls.key for the metrics endpoint; empty means that of the webhooks, or without webhooks a self-signed one.
	MetricsCertDir string
	// RT are the settings of real-time admission.
	RT RTOptions
	// Pressure are the settings of the answer to real-time pressure.
	Pressure PressureOptions
	// Repack are the settings of repacking.
	Repack RepackOptions
	// Queue are the settings of the orchestration queue.
	Queue QueueOptions
	// Webhooks are the settings of the admission webhooks.
	Webhooks WebhookOptions
	// Overruns are the settings of POST /overrun.
	Overruns OverrunOptions
	// Migration are the settings of migrations, and of resource pressure, for which they are.
	Migration MigrationOptions
}

// UsageError is an error in what the caller asked for: a flag, a variable, an argument.
type UsageError struct{ err error }

func (e *UsageError) Error() string { return e.err.Error() }
func (e *UsageError) Unwrap() error { return e.err }

// IsUsageError tells whether the command line or environment, not the cluster, is at fault.
func IsUsageError(err error) bool {
	usage := (*UsageError)(nil)
	return errors.As(err, &usage)
}

func (o *Options) addFlags(fs *options.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", "", "Path of the kubeconfig. Empty: the in-cluster configuration")
	fs.StringVar(&o.CloudProvider, "cloud-provider", ProviderSimulated, "Cloud provider that opens and closes machines. One of: simulated, inventory")
	fs.StringVar(&o.CatalogueFile, "catalogue-file", "", "YAML catalogue of instance types. Empty: the embedded catalogue")
	fs.DurationVar(&o.SimulatedRepairToleration, "simulated-repair-toleration", 30*time.Second, "How long a simulated node may be unhealthy before node repair acts")
	o.Inventory.addFlags(fs)
	fs.StringVar(&o.MetricsCertDir, "metrics-cert-dir", "", "Directory with tls.crt and tls.key for the metrics endpoint. Empty: the webhooks' certificate, or without webhooks a self-signed one")
	o.RT.addFlags(fs)
	o.Pressure.addFlags(fs)
	o.Repack.addFlags(fs)
	o.Queue.addFlags(fs)
	o.Webhooks.addFlags(fs)
	o.Overruns.addFlags(fs)
	o.Migration.addFlags(fs)
}

// validate checks what the flag types cannot; karpenter are the options parsed beside these.
func (o *Options) validate(karpenter *options.Options) error {
	if o.CloudProvider != ProviderSimulated && o.CloudProvider != ProviderInventory {
		return fmt.Errorf("--cloud-provider is %q; it must be %q or %q", o.CloudProvider, ProviderSimulated, ProviderInventory)
	}
	if err := o.Inventory.validate(); err != nil {
		return err
	}
	if o.SimulatedRepairToleration <= 0 {
		return fmt.Errorf("--simulated-repair-toleration is %s; it must be longer than 0", o.SimulatedRepairToleration)
	}
	if err := hasCertificate("--metrics-cert-dir", o.MetricsCertDir); err != nil {
		return err
	}
	for _, validate := range []func() error{o.Overruns.validate, o.Webhooks.validate, o.RT.validate, o.Pressure.Validate, o.Repack.validate, o.Queue.validate} {
		if err := validate(); err != nil {
			return err
		}
	}
	for _, p := range ports(karpenter) {
		if p.number < 0 || p.number > 65535 {
			return fmt.Errorf("--%s is %d; it must be from 1 to 65535, or 0 for any free one", p.flag, p.number)
		}
	}
	if o.Kubeconfig != "" && !karpenter.DisableLeaderElection && karpenter.LeaderElectionNamespace == "" {
		return errors.New("--leader-election-namespace is empty; outside a cluster it must name the namespace of the lease, or --disable-leader-election=true")
	}
	return nil
}

// port is one that the controller listens on.
type port struct {
	flag   string
	number int
}

func ports(o *options.Options) []port {
	return []port{{"metrics-port", o.MetricsPort}, {"health-probe-port", o.HealthProbePort}}
}

// hasCertificate refuses a directory that controller-runtime would pass over for a self-signed
// certificate.
func hasCertificate(flag, dir string) error {
	if dir == "" {
		return nil
	}
	for _, file := range []string{"tls.crt", "tls.key"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			return fmt.Errorf("%s is %q; it must hold tls.crt and tls.key: %w", flag, dir, err)
		}
	}
	return nil
}

// parseOptions reads flags and environment into Karpenter's options, those of its providers, and
// ours, and returns a context that carries the first two, which is how Karpenter's controllers
// expect them. Where Karpenter silently falls back to a default for a variable that it cannot
// parse, this refuses.
func parseOptions(ctx context.Context, args []string, usage io.Writer) (context.Context, *Options, error) {
	fs := &options.FlagSet{FlagSet: flag.NewFlagSet("mainspring-controller", flag.ContinueOnError)}
	fs.SetOutput(io.Discard)
	own := &Options{}
	for _, i := range options.Injectables {
		i.AddFlags(fs)
	}
	own.addFlags(fs)
	if err := applyDefaults(fs); err != nil {
		return nil, nil, err
	}
	if err := errors.Join(applyAliases(fs.FlagSet), applyEnvironment(fs.FlagSet)); err != nil {
		return nil, nil, &UsageError{err}
	}
	if err := parseFlags(fs, args, usage); err != nil {
		return nil, nil, err
	}
	if err := knownGates(fs.Lookup("feature-gates").Value.String()); err != nil {
		return nil, nil, &UsageError{err}
	}
	for _, i := range options.Injectables {
		// Each validates its own fields; the flags themselves are parsed already.
		if err := i.Parse(fs, args...); err != nil {
			return nil, nil, &UsageError{err}
		}
		ctx = i.ToContext(ctx)
	}
	if err := own.Migration.complete(fs.FlagSet, os.LookupEnv); err != nil {
		return nil, nil, &UsageError{err}
	}
	if err := own.validate(options.FromContext(ctx)); err != nil {
		return nil, nil, &UsageError{err}
	}
	return ctx, own, nil
}

// knownGates refuses the names that Karpenter's parser would silently ignore: a misspelt gate stays
// off, and nobody would know.
func knownGates(value string) error {
	gates := map[string]bool{}
	if err := cliflag.NewMapStringBool(&gates).Set(value); err != nil {
		return fmt.Errorf("--feature-gates is %q: %w", value, err)
	}
	names := lo.Map(options.KarpenterFeatureGates, func(g options.FeatureGate, _ int) string { return g.Name })
	for _, gate := range slices.Sorted(maps.Keys(gates)) {
		if !slices.Contains(names, gate) {
			return fmt.Errorf("--feature-gates names %q; the gates are %s", gate, strings.Join(names, ", "))
		}
	}
	return nil
}

// applyDefaults sets what differs from Karpenter's own defaults.
func applyDefaults(fs *options.FlagSet) error {
	for name, value := range map[string]string{
		// Real-time capacity is claimed through DRA: a scheduler that ignores claims would never open
		// a node for a real-time pod.
		"ignore-dra-requests":  "false",
		"leader-election-name": "mainspring-leader-election",
	} {
		if err := fs.Set(name, value); err != nil {
			return fmt.Errorf("setting the default of --%s: %w", name, err)
		}
		fs.Lookup(name).DefValue = value
	}
	return nil
}

func applyEnvironment(fs *flag.FlagSet) error {
	var errs []error
	fs.VisitAll(func(f *flag.Flag) {
		name := strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, ok := os.LookupEnv(name)
		if !ok || value == "" {
			return
		}
		if err := fs.Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("environment variable %s is %q: %w", name, value, err))
		}
	})
	return errors.Join(errs...)
}

func parseFlags(fs *options.FlagSet, args []string, usage io.Writer) error {
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fs.SetOutput(usage)
		fs.PrintDefaults()
		return flag.ErrHelp
	}
	if err != nil {
		return &UsageError{fmt.Errorf("%w; --help lists the flags", err)}
	}
	if fs.NArg() > 0 {
		return &UsageError{fmt.Errorf("argument %q is not a flag; --help lists the flags", fs.Arg(0))}
	}
	return nil
}
