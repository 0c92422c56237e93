// Package optimizer keeps the status of WorkloadOptimizers: what the pods of a workload cost and draw, whether that is what
// they may, whether any machine could keep the constraints, and how far the placement is from the best. It reads the API and
// the cloud provider, and writes nothing but statuses, Events and metrics. It may import Karpenter, the API types, and the
// packages that compute (allocation, packing, powermodel). Controller is the control loop, market the machines that may be
// opened for a workload, figures what its pods cost and draw.
package optimizer
