package provisioning

import (
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/awslabs/operatorpkg/singleton"
)

// Keep is the loop that looks after opened nodes, for driving it by hand.
func Keep(d KeeperDependencies) reconcile.Reconciler { return singleton.AsReconciler(&keeper{d}) }
