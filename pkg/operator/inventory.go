package operator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/operator"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/mainspring-rt/mainspring/pkg/cloudprovider"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/inventory"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/inventory/power"
)

// InventoryOptions are the settings of the inventory provider.
type InventoryOptions struct {
	// SecretNamespace is where the Secrets of power drivers are.
	SecretNamespace string
	// ExecDirectory holds the programs that power drivers may run; empty: none.
	ExecDirectory string
	// Labels are the keys of machines' labels that pods may select by, separated by commas.
	Labels string
	// PowerTimeout bounds each call of a power driver.
	PowerTimeout time.Duration
	// Quarantine is how long a machine that has failed once is not offered.
	Quarantine time.Duration
	// RepairToleration is how long a node may be unhealthy before its machine is rebooted.
	RepairToleration time.Duration
}

func (o *InventoryOptions) addFlags(fs *options.FlagSet) {
	fs.StringVar(&o.SecretNamespace, "inventory-secret-namespace", "mainspring-system", "Namespace of the Secrets that InventoryMachines name")
	fs.StringVar(&o.ExecDirectory, "inventory-exec-directory", "", "Directory of the programs that InventoryMachines may have run (power.exec). Empty: none may be")
	fs.StringVar(&o.Labels, "inventory-labels", "", "Comma-separated keys of InventoryMachines' spec.labels that NodePools and pods may select machines by")
	fs.DurationVar(&o.PowerTimeout, "inventory-power-timeout", 30*time.Second, "How long each call of a power driver may take")
	fs.DurationVar(&o.Quarantine, "inventory-quarantine", 5*time.Minute, "How long a machine that did not become a Ready Node is not offered; doubled with each further failure in a row, up to 64 times as long")
	fs.DurationVar(&o.RepairToleration, "inventory-repair-toleration", 5*time.Minute, "How long a node may be unhealthy before node repair reboots its machine")
}

func (o *InventoryOptions) validate() error {
	if problems := validation.IsDNS1123Label(o.SecretNamespace); len(problems) > 0 {
		return fmt.Errorf("--inventory-secret-namespace is %q; %s", o.SecretNamespace, problems[0])
	}
	if o.ExecDirectory != "" {
		if info, err := os.Stat(o.ExecDirectory); err != nil || !info.IsDir() || !filepath.IsAbs(o.ExecDirectory) {
			return fmt.Errorf("--inventory-exec-directory is %q; it must be the absolute path of a directory", o.ExecDirectory)
		}
	}
	for _, key := range o.labels() {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			return fmt.Errorf("--inventory-labels has %q; %s", key, problems[0])
		}
	}
	if o.PowerTimeout < time.Second || o.PowerTimeout > 5*time.Minute {
		return fmt.Errorf("--inventory-power-timeout is %s; it must be from 1s to 5m", o.PowerTimeout)
	}
	if o.Quarantine < time.Second || o.Quarantine > 24*time.Hour {
		return fmt.Errorf("--inventory-quarantine is %s; it must be from 1s to 24h", o.Quarantine)
	}
	if o.RepairToleration <= 0 {
		return fmt.Errorf("--inventory-repair-toleration is %s; it must be longer than 0", o.RepairToleration)
	}
	return nil
}

func (o *InventoryOptions) labels() []string {
	if o.Labels == "" {
		return nil
	}
	return strings.Split(o.Labels, ",")
}

func newInventory(op *operator.Operator, own InventoryOptions) *provider {
	cloudprovider.RegisterLabels()
	karpv1.WellKnownLabels = karpv1.WellKnownLabels.Insert(own.labels()...)
	machines := inventory.New(inventory.Options{
		Client:           op.GetClient(),
		Reader:           op.GetAPIReader(),
		Clock:            op.Clock,
		Recorder:         op.EventRecorder,
		Dialer:           power.Dialer{Secrets: secretsIn(op.GetAPIReader(), own.SecretNamespace), ExecDirectory: own.ExecDirectory},
		Labels:           own.labels(),
		PowerTimeout:     own.PowerTimeout,
		Quarantine:       own.Quarantine,
		RepairToleration: own.RepairToleration,
	})
	return &provider{CloudProvider: machines, controllers: machines.Controllers(), launchAtPricesOf: machines.LaunchAtPricesOf}
}

// secretsIn reads Secrets by name, each from the API server: a cache of them would need the right to list them all.
func secretsIn(reader client.Reader, namespace string) power.Secrets {
	return func(ctx context.Context, name string) (map[string][]byte, error) {
		secret := &corev1.Secret{}
		err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("%w: reading Secret %q in namespace %q: %w", power.ErrConfig, name, namespace, err)
		}
		if err != nil {
			return nil, fmt.Errorf("reading Secret %q in namespace %q: %w", name, namespace, err)
		}
		return secret.Data, nil
	}
}
