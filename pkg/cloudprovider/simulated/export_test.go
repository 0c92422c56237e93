package simulated

import "sigs.k8s.io/controller-runtime/pkg/reconcile"

// Registrar and Faults are the provider's control loops, for driving them by hand.
func (p *Provider) Registrar() reconcile.Reconciler { return p.Controllers()[0].(*registrar) }

// Faults is the loop that makes faults act.
func (p *Provider) Faults() reconcile.Reconciler { return p.Controllers()[1].(*faultController) }

// NodeName and ClaimOf are the naming rule.
var (
	NodeName = nodeName
	ClaimOf  = claimOf
	Hostname = hostname
)
