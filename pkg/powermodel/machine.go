// Package powermodel computes what machines draw, in watts, from the power of the host and that of its devices without
// load and under full load. It imports the API types only, so that the cloud provider, the reports and the
// controllers compute the same figure. Machine is a machine's power, Range the power of one of its parts.
package powermodel

import (
	"math"
	"strconv"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// Range is the power of a part of a machine in watts: without load and under full load.
type Range struct{ Idle, Max float64 }

// at returns the power under a load from 0 to 1. SPECpower results of servers are close to linear in between
// (Fan, Weber, Barroso: Power provisioning for a warehouse-sized computer, ISCA 2007).
func (r Range) at(load float64) float64 { return r.Idle + min(1, max(0, load))*(r.Max-r.Idle) }

// valid says that both values are finite, and that full load draws at least what idling draws.
func (r Range) valid() bool { return r.Idle >= 0 && r.Max >= r.Idle && !math.IsInf(r.Max, 0) }

// Machine is the power of a machine: its host, memory included, and all its devices (GPUs, NPUs) together.
type Machine struct{ Host, Devices Range }

// Watts returns the power of the machine while the host and the devices have the given loads, each from 0 to 1.
// Where the power of the devices is not known apart (modules with a GPU on the chip) the larger load drives it all.
func (m Machine) Watts(host, devices float64) float64 {
	if m.Devices.Max == 0 {
		return m.Host.at(max(host, devices))
	}
	return m.Host.at(host) + m.Devices.at(devices)
}

// Whole returns the power of host and devices together.
func (m Machine) Whole() Range {
	return Range{Idle: m.Host.Idle + m.Devices.Idle, Max: m.Host.Max + m.Devices.Max}
}

// New divides the power of a whole machine into that of its devices and that of its host, which is the rest.
// Anything else than finite ranges of at least 0 is refused with false.
func New(whole, devices Range) (Machine, bool) {
	m := Machine{Host: Range{Idle: milli(whole.Idle - devices.Idle), Max: milli(whole.Max - devices.Max)}, Devices: devices}
	return m, whole.valid() && m.Host.valid() && devices.valid()
}

// FromLabels reads the power of a machine from the labels of its Node or NodeClaim. Labels that are absent, or that
// no machine can have, give false.
func FromLabels(labels map[string]string) (Machine, bool) {
	whole, ok := rangeOf(labels, v1alpha1.LabelWattsIdle, v1alpha1.LabelWattsMax)
	if !ok {
		return Machine{}, false
	}
	devices, ok := rangeOf(labels, v1alpha1.LabelDeviceWattsIdle, v1alpha1.LabelDeviceWattsMax)
	if !ok {
		devices = Range{}
	}
	m, ok := New(whole, devices)
	if !ok {
		return Machine{}, false
	}
	return m, true
}

func rangeOf(labels map[string]string, idle, full string) (Range, bool) {
	low, err := strconv.ParseFloat(labels[idle], 64)
	if err != nil {
		return Range{}, false
	}
	high, err := strconv.ParseFloat(labels[full], 64)
	return Range{Idle: low, Max: high}, err == nil
}

// Labels returns the machine's power as labels: those of the devices only where it has devices.
func (m Machine) Labels() map[string]string {
	whole := m.Whole()
	out := map[string]string{v1alpha1.LabelWattsIdle: format(whole.Idle), v1alpha1.LabelWattsMax: format(whole.Max)}
	if m.Devices.Max > 0 {
		out[v1alpha1.LabelDeviceWattsIdle] = format(m.Devices.Idle)
		out[v1alpha1.LabelDeviceWattsMax] = format(m.Devices.Max)
	}
	return out
}

// milli rounds to milliwatts: the sum of a host and its devices is again the figure that was divided.
func milli(watts float64) float64 { return math.Round(watts*1000) / 1000 }

func format(watts float64) string { return strconv.FormatFloat(milli(watts), 'f', -1, 64) }
