// Package optimizer keeps the status of the kinds of group kcloud.io. Of a WorkloadOptimizer: what the pods of a workload
// cost and draw, whether that is what they may, whether any machine could keep the constraints, and how far the placement
// is from the best. Of a CostPolicy and a PowerPolicy: what the selected pods cost and draw, what has added up, and which
// limits and thresholds are exceeded. It reads the API and the cloud provider, and writes nothing but statuses, Events and
// metrics. It may import Karpenter, the API types, pkg/cloudprovider, and the packages that compute (allocation, packing,
// powermodel). Controller, CostPolicies and PowerPolicies are the control loops of the three kinds; FleetCost is the one that bounds
// the cheapest packing of all pods. Readings reads machines, nodes and pods
// for all of them, market is the machines that may be opened, figures what the pods of a workload cost and draw.
package optimizer
