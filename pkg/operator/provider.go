package operator

import (
	"context"
	"fmt"

	"github.com/awslabs/operatorpkg/controller"
	kwokoptions "sigs.k8s.io/karpenter/kwok/options"
	karpenter "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/operator"

	"github.com/mainspring-rt/mainspring/pkg/cloudprovider"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/simulated"
)

// provider is a cloud provider with our knowledge of its machines, and what it needs running.
type provider struct {
	karpenter.CloudProvider
	controllers []controller.Controller
	// launchAtPricesOf tells the provider which decorated view of itself the scheduler plans with, so
	// that it launches what was planned.
	launchAtPricesOf func(karpenter.CloudProvider)
}

// newProvider builds the provider that the options name.
func newProvider(ctx context.Context, op *operator.Operator, own *Options) (*provider, error) {
	if own.CloudProvider == ProviderInventory {
		return newInventory(op, own.Inventory), nil
	}
	return newSimulated(ctx, op, own)
}

func newSimulated(ctx context.Context, op *operator.Operator, own *Options) (*provider, error) {
	machines, err := loadCatalogue(ctx, own)
	if err != nil {
		return nil, &UsageError{err}
	}
	types, err := simulated.InstanceTypes(ctx, machines)
	if err != nil {
		return nil, &UsageError{fmt.Errorf("reading instance types: %w", err)}
	}
	named, err := namedTypes(ctx, own, machines)
	if err != nil {
		return nil, err
	}
	cloudprovider.RegisterLabels()
	sim, err := simulated.New(ctx, simulated.Options{
		Client:           op.GetClient(),
		Clock:            op.Clock,
		Recorder:         op.EventRecorder,
		Catalogue:        machines,
		InstanceTypes:    types,
		Named:            named,
		RepairToleration: own.SimulatedRepairToleration,
	})
	if err != nil {
		return nil, fmt.Errorf("building the simulated cloud: %w", err)
	}
	return &provider{
		CloudProvider:    cloudprovider.Decorate(sim, machines),
		controllers:      sim.Controllers(),
		launchAtPricesOf: sim.LaunchAtPricesOf,
	}, nil
}

// namedTypes are those that NodePools written for Karpenter's kwok provider may name beside the embedded catalogue. A user's own list is all that there is.
func namedTypes(ctx context.Context, own *Options, embedded *catalogue.Catalogue) ([]*karpenter.InstanceType, error) {
	if o := kwokoptions.FromContext(ctx); o != nil && o.InstanceTypesFilePath != "" || own.CatalogueFile != "" {
		return nil, nil
	}
	return simulated.KwokInstanceTypes(embedded)
}

// loadCatalogue reads what is known of machines. Where the user brings instance types of his own and
// no catalogue for them, nothing is: the embedded one would put its prices over his.
func loadCatalogue(ctx context.Context, own *Options) (*catalogue.Catalogue, error) {
	if o := kwokoptions.FromContext(ctx); o != nil && o.InstanceTypesFilePath != "" && own.CatalogueFile == "" {
		return &catalogue.Catalogue{}, nil
	}
	return catalogue.Load(own.CatalogueFile)
}
