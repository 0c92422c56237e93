// Command stock is upstream's Karpenter with its kwok provider, without anything of ours but the list of machines: what
// bench-ladder compares with.
package main

import (
	"context"
	"fmt"
	"os"

	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/node/health"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"

	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/simulated"
)

// catalogueVariable names the file of machines: the flags are upstream's.
const catalogueVariable = "CATALOGUE_FILE"

func main() {
	ctx, op := operator.NewOperator()
	if err := run(ctx, op); err != nil {
		fmt.Fprintf(os.Stderr, "stock: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, op *operator.Operator) error {
	types, err := machines(ctx)
	if err != nil {
		return err
	}
	bare := kwok.NewCloudProvider(ctx, op.GetClient(), types)
	provider := overlay.Decorate(bare, op.GetClient(), op.InstanceTypeStore)
	repair, err := health.NewRepairPolicyMatcher(ctx, provider)
	if err != nil {
		return fmt.Errorf("reading repair policies: %w", err)
	}
	cluster := state.NewCluster(op.Clock, op.GetClient(), provider, state.WithRepairPolicyMatcher(repair))
	op.WithControllers(ctx, controllers.NewControllers(
		ctx, op.Manager, op.Clock, op.GetClient(), op.EventRecorder, provider, bare, cluster, op.InstanceTypeStore, op.PredictionStore,
	)...).Start(ctx)
	return nil
}

func machines(ctx context.Context) ([]*cloudprovider.InstanceType, error) {
	list, err := catalogue.Load(os.Getenv(catalogueVariable))
	if err != nil {
		return nil, err
	}
	return simulated.InstanceTypes(ctx, list)
}
