package inventory

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"unique"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
	"github.com/mainspring-rt/mainspring/pkg/powermodel"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// shape is what makes two machines the same to the scheduler. Watts and prices are not part of it: who corrects
// them does not want running machines replaced.
type shape struct {
	Class, Architecture, Zone string
	Labels                    map[string]string
	Capacity, Reserved        corev1.ResourceList
	Cores                     *v1alpha1.CoreLayout
}

// hashLength is how much of a shape's hash is in an instance type's name.
const hashLength = 8

// typeName is the instance type of a machine; of its labels, those with these keys count. JSON orders the keys of maps,
// and quantities are spelt in one way, so it is the same for the same shape.
func typeName(m *Machine, keys []string) string {
	data, err := json.Marshal(shape{
		Class: m.Spec.HardwareClass, Architecture: m.Spec.Architecture, Zone: m.Spec.Zone, Labels: labelsOf(m, keys),
		Capacity: canonical(m.Spec.Capacity), Reserved: canonical(m.Spec.Reserved), Cores: m.Spec.Cores,
	})
	if err != nil { // a type without channels and functions encodes
		panic(fmt.Sprintf("encoding a machine's shape: %v", err))
	}
	sum := sha256.Sum256(data)
	return m.Spec.HardwareClass + "-" + hex.EncodeToString(sum[:])[:hashLength]
}

// labelsOf are the machine's own labels with these keys.
func labelsOf(m *Machine, keys []string) map[string]string {
	found := map[string]string{}
	for _, key := range keys {
		if value, ok := m.Spec.Labels[key]; ok {
			found[key] = value
		}
	}
	return found
}

// canonical spells each quantity in one way: 8192Mi is 8Gi.
func canonical(list corev1.ResourceList) corev1.ResourceList {
	out := make(corev1.ResourceList, len(list))
	for name, q := range list {
		out[name] = resource.MustParse(q.String())
	}
	return out
}

// typeNames remembers the instance types of machines by generation: the scheduler asks often.
type typeNames struct {
	keys []string // of the labels that the scheduler knows

	mu    sync.Mutex
	known map[types.UID]namedGeneration
}

type namedGeneration struct {
	generation int64
	name       string
}

// maxTypeNames bounds the memory for machines that come and go.
const maxTypeNames = 10_000

func (n *typeNames) of(m *Machine) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if k, ok := n.known[m.UID]; ok && k.generation == m.Generation && m.UID != "" {
		return k.name
	}
	if n.known == nil || len(n.known) >= maxTypeNames {
		n.known = map[types.UID]namedGeneration{}
	}
	name := typeName(m, n.keys)
	n.known[m.UID] = namedGeneration{m.Generation, name}
	return name
}

// defaultPods is how many pods a kubelet takes when nobody says otherwise.
const defaultPods = 110

// capacityOf is a machine's capacity with its defaults.
func capacityOf(m *Machine) corev1.ResourceList {
	list := m.Spec.Capacity.DeepCopy()
	if _, ok := list[corev1.ResourcePods]; !ok {
		list[corev1.ResourcePods] = *resource.NewQuantity(defaultPods, resource.DecimalSI)
	}
	return list
}

// priceOf is what an hour of the machine costs in USD.
func priceOf(m *Machine) float64 {
	if m.Spec.PricePerHour == nil {
		return 0
	}
	return m.Spec.PricePerHour.AsFloat64Slow()
}

// wattsKeys are the labels of a machine's power.
var wattsKeys = []string{v1alpha1.LabelWattsIdle, v1alpha1.LabelWattsMax, v1alpha1.LabelDeviceWattsIdle, v1alpha1.LabelDeviceWattsMax}

// wattsLabels returns the machine's power as labels; none where its owner does not say it, or says what no machine draws.
func wattsLabels(m *Machine) map[string]string {
	w := m.Spec.Watts
	if w == nil {
		return nil
	}
	devices := powermodel.Range{}
	if d := w.Devices; d != nil {
		devices = powermodel.Range{Idle: d.Idle.AsFloat64Slow(), Max: d.Max.AsFloat64Slow()}
	}
	machine, ok := powermodel.New(powermodel.Range{Idle: w.Idle.AsFloat64Slow(), Max: w.Max.AsFloat64Slow()}, devices)
	if !ok {
		return nil
	}
	return machine.Labels()
}

// corePool begins the name of the pool of template devices, which the instance type ends: Karpenter asks only once
// whether the device of a name in a pool is what a claim selects. The pool that a node publishes bears the node's name.
const corePool = "cores-"

// dynamicResources are the real-time cores of a machine of an instance type as the node's agent will publish them.
func dynamicResources(name string, m *Machine) cloudprovider.DynamicResources {
	if m.Spec.Cores == nil {
		return cloudprovider.DynamicResources{}
	}
	published := coreDevices(m.Spec.Cores)
	devices := make([]cloudprovider.Device, len(published))
	for i, d := range published {
		devices[i] = cloudprovider.Device{
			Name: unique.Make(d.Name), Attributes: d.Attributes, Capacity: d.Capacity,
			AllowMultipleAllocations: ptr.Deref(d.AllowMultipleAllocations, false),
		}
	}
	return cloudprovider.DynamicResources{ResourceSliceTemplates: []*cloudprovider.ResourceSliceTemplate{{
		Driver: unique.Make(v1alpha1.DriverCPU), Pool: cloudprovider.ResourcePool{Name: unique.Make(corePool + name)}, Devices: devices,
	}}}
}

// coreDevices are the cores of a layout as DRA devices. What the agents of a backend make nothing of is kept of none.
func coreDevices(l *v1alpha1.CoreLayout) []resourcev1.Device {
	reserve := int(l.EscalationReservePPM)
	if !rt.KeepsLimited(l.Backend) {
		reserve = 0
	}
	layout := catalogue.RT{
		NUMANodes: int(max(l.NUMANodes, 1)), CoresPerNUMA: int(l.CoresPerNUMA), SMT: l.SMT, Housekeeping: ints(l.Housekeeping),
		BandwidthPPM: int(l.BandwidthPPM), GranularityUs: int(l.GranularityUs),
		EscalationReservePPM: reserve, EscalationCores: ints(l.EscalationCores),
	}
	var devices []resourcev1.Device
	for _, core := range layout.Cores() {
		core.Policy = rt.PolicyOf(l.Backend)
		devices = append(devices, rtdra.Device(core, l.Backend))
	}
	return devices
}

func ints(list []int32) []int {
	out := make([]int, len(list))
	for i, n := range list {
		out[i] = int(n)
	}
	return out
}
