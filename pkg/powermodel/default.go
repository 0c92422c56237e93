package powermodel

import corev1 "k8s.io/api/core/v1"

// Coefficients of Default, in watts: the average of Cloud Carbon Footprint's x86 families, from SPECpower results
// (AwsFootprintEstimationConstants.ts, March 2024), and its figures for a V100.
const (
	cpuIdle, cpuMax       = 0.74, 3.5 // per vCPU
	memoryPerGiB          = 0.392
	deviceIdle, deviceMax = 35, 306 // per GPU or NPU
)

// Default returns the power of a machine of which nothing but its resources is known.
func Default(capacity corev1.ResourceList) Machine {
	cpus := capacity.Cpu().AsApproximateFloat64()
	memory := capacity.Memory().AsApproximateFloat64() / (1 << 30) * memoryPerGiB
	devices := Devices(capacity, GPU) + Devices(capacity, NPU)
	return Machine{
		Host:    Range{Idle: cpus*cpuIdle + memory, Max: cpus*cpuMax + memory},
		Devices: Range{Idle: devices * deviceIdle, Max: devices * deviceMax},
	}
}
