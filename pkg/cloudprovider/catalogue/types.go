// Package catalogue knows machines: what they hold, what they cost, what they draw, and how their
// cores are laid out. It is data (catalogue.yaml, or a user's own file in the same form) with a
// loader that refuses what it cannot trust.
package catalogue

import "github.com/mainspring-rt/mainspring/pkg/powermodel"

// Class is the kind of a machine; it is the value of label mckube.io/hardware-class.
type Class string

// The classes of machines.
const (
	General Class = "general"
	GPU     Class = "gpu"
	NPU     Class = "npu"
	Edge    Class = "edge"
)

// Catalogue is a checked list of machines. It is never changed after it was loaded.
type Catalogue struct {
	// Sources are the origins of the figures, by the name that entries refer to.
	Sources map[string]string
	// Zones that a machine is offered in when its entry names none.
	Zones []string
	// InstanceTypes in the order of the file.
	InstanceTypes []*InstanceType

	byName map[string]*InstanceType
}

// Lookup returns the machine of that name, or nil and false.
func (c *Catalogue) Lookup(name string) (*InstanceType, bool) {
	it, ok := c.byName[name]
	return it, ok
}

// InstanceType is one kind of machine.
type InstanceType struct {
	// Name is unique in the catalogue and a valid label value.
	Name string `json:"name"`
	// Class of the machine.
	Class Class `json:"class"`
	// Family groups machines, as in label karpenter.kwok.sh/instance-family.
	Family string `json:"family"`
	// Architecture is amd64 or arm64.
	Architecture string `json:"architecture"`
	// CPU is the number of logical CPUs.
	CPU int `json:"cpu"`
	// MemoryGiB is the memory in GiB.
	MemoryGiB int `json:"memoryGiB"`
	// Pods is the most pods that a node of this kind runs.
	Pods int `json:"pods"`
	// EphemeralGiB is the local storage for pods in GiB.
	EphemeralGiB int `json:"ephemeralGiB"`
	// GPUs of the machine; nil without any.
	GPUs *Devices `json:"gpus,omitempty"`
	// NPUs of the machine; nil without any.
	NPUs *Devices `json:"npus,omitempty"`
	// RT is the layout of the cores for real-time work; nil when the machine offers none.
	RT *RT `json:"rt,omitempty"`
	// Price outside reservations.
	Price Price `json:"price"`
	// Watts of the whole machine.
	Watts Watts `json:"watts"`
	// Zones that the machine is offered in.
	Zones []string `json:"zones,omitempty"`
	// Reserved is the capacity reservation for this machine; nil without one.
	Reserved *Reservation `json:"reserved,omitempty"`
}

// Devices are like accelerators of a machine.
type Devices struct {
	// Resource is the extended resource name, one unit per device.
	Resource string `json:"resource"`
	// Model of the devices, a valid label value.
	Model string `json:"model"`
	// Count of devices.
	Count int `json:"count"`
}

// Price is what a machine costs in USD per hour.
type Price struct {
	// OnDemand price.
	OnDemand float64 `json:"onDemand"`
	// Spot price; 0 when the machine is not offered as spot.
	Spot float64 `json:"spot,omitempty"`
	// Source names the entry of Catalogue.Sources that the prices come from.
	Source string `json:"source"`
}

// Watts is what a whole machine draws.
type Watts struct {
	// Idle is the power without load.
	Idle float64 `json:"idle"`
	// Max is the power under full load.
	Max float64 `json:"max"`
	// Devices is the part of both that GPUs and NPUs draw together; nil where it is not known apart.
	Devices *DeviceWatts `json:"devices,omitempty"`
	// Source names the entry of Catalogue.Sources that the figures come from.
	Source string `json:"source"`
}

// DeviceWatts is what all devices of a machine draw.
type DeviceWatts struct {
	// Idle is the power without load.
	Idle float64 `json:"idle"`
	// Max is the power under full load.
	Max float64 `json:"max"`
}

// Machine divides the power between the host and its devices. The second result is false where no machine can
// draw these watts, or nothing is known of them.
func (w Watts) Machine() (powermodel.Machine, bool) {
	devices := powermodel.Range{}
	if w.Devices != nil {
		devices = powermodel.Range(*w.Devices)
	}
	m, ok := powermodel.New(powermodel.Range{Idle: w.Idle, Max: w.Max}, devices)
	return m, ok && w.Max > 0
}

// Reservation is capacity that is paid for and kept free in one zone.
type Reservation struct {
	// Price in USD per hour.
	Price float64 `json:"price"`
	// Count of machines.
	Count int `json:"count"`
	// Zone that they are in.
	Zone string `json:"zone"`
	// Source names the entry of Catalogue.Sources that the price comes from.
	Source string `json:"source"`
}

// ReservationID names the reservation of this machine, or "" without one.
func (it *InstanceType) ReservationID() string {
	if it.Reserved == nil {
		return ""
	}
	return it.Name + "." + it.Reserved.Zone
}
