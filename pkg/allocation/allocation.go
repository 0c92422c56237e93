// Package allocation shares out what a machine costs and draws among the pods on it, as OpenCost's specification does: each
// pod gets the part that its requests have of the machine, and what no pod requests stays apart as idle. It computes
// only. Machine is a machine, Share the part of one pod.
package allocation

import (
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/mainspring-rt/mainspring/pkg/powermodel"
)

// Weights of resources within a machine: OpenCost's default prices (configs/default.json), in USD per core, GiB and GPU and hour.
// They decide how a machine's price is shared between a pod with many cores and one with much memory, and nothing else.
const (
	weightCPU    = 0.031611
	weightMemory = 0.004237
	weightDevice = 0.95
)

// Machine is a machine that pods run on.
type Machine struct {
	// Price in USD per hour.
	Price float64
	// Power of the machine.
	Power powermodel.Machine
	// Allocatable is what pods can request of it.
	Allocatable corev1.ResourceList
}

// Share is a part of a machine's cost and power.
type Share struct {
	// Part of the machine, 0 to 1.
	Part float64
	// Cost in USD per hour.
	Cost float64
	// Watts that it draws.
	Watts float64
}

// Plus adds two shares.
func (s Share) Plus(o Share) Share {
	return Share{Part: s.Part + o.Part, Cost: s.Cost + o.Cost, Watts: s.Watts + o.Watts}
}

// Times multiplies a share.
func (s Share) Times(f float64) Share {
	return Share{Part: s.Part * f, Cost: s.Cost * f, Watts: s.Watts * f}
}

// Shares returns the share of each pod by its requests, in the order of the requests, and what is idle. Together they are the
// machine's price and the power that it draws under these requests. Where pods request more than is allocatable
// (a node that lost devices), all of it is theirs.
func (m Machine) Shares(requests []corev1.ResourceList) (pods []Share, idle Share) {
	var part, load, devices float64
	pods = make([]Share, len(requests))
	loads := make([]float64, len(requests))
	for i, r := range requests {
		pods[i].Part = ratio(weight(r), weight(m.Allocatable))
		part += pods[i].Part
		cpu, device := ratio(cores(r), cores(m.Allocatable)), powermodel.DeviceLoad(r, m.Allocatable)
		loads[i] = m.Power.Watts(cpu, device) - m.Power.Whole().Idle
		load, devices = load+cpu, devices+device
	}
	scale := 1 / max(1, part)
	resting := m.Power.Whole().Idle
	working := m.Power.Watts(load, devices) - resting
	sum := 0.0
	for _, l := range loads {
		sum += l
	}
	for i := range pods {
		pods[i].Part *= scale
		pods[i].Cost = m.Price * pods[i].Part
		pods[i].Watts = resting*pods[i].Part + working*ratio(loads[i], sum)
	}
	left := max(0, 1-part*scale)
	return pods, Share{Part: left, Cost: m.Price * left, Watts: resting * left}
}

// weight is what a list of resources counts within a machine.
func weight(list corev1.ResourceList) float64 {
	devices := powermodel.Devices(list, powermodel.GPU) + powermodel.Devices(list, powermodel.NPU)
	return weightCPU*cores(list) + weightMemory*list.Memory().AsApproximateFloat64()/(1<<30) + weightDevice*devices
}

func cores(list corev1.ResourceList) float64 { return list.Cpu().AsApproximateFloat64() }

// ratio is part of whole; 0 of nothing.
func ratio(part, whole float64) float64 {
	if whole <= 0 || math.IsNaN(part) {
		return 0
	}
	return part / whole
}
