// Package limits keeps NodePools within the limits of CostPolicies and PowerPolicies. While Karpenter plans, offerings
// that a limit leaves no room for are unavailable; when a machine is launched, the limit is compared once more with all
// that runs and starts, because one plan opens many machines. Nothing is ever closed for a limit. The package may
// import Karpenter, the API types and the model of power. Provider decorates a cloud provider, room is what a NodePool
// may still open, Changes tells Karpenter when that may have grown.
package limits
