package replay

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
)

// Kubernetes' share of every machine, as the simulated cloud takes it off.
const (
	reservedCPUMilli  = 100
	reservedMemoryMiB = 10
)

// Labels that NodePools may ask for and that are not the catalogue's own.
const (
	familyLabel = "karpenter.kwok.sh/instance-family"
	sizeLabel   = "karpenter.kwok.sh/instance-size"
	cpuLabel    = "karpenter.kwok.sh/instance-cpu"
	memoryLabel = "karpenter.kwok.sh/instance-memory"
)

// Pool is what is read of a NodePool.
type Pool struct {
	Name         string
	Requirements []Requirement
}

// Requirement is one of a NodePool's requirements of its machines.
type Requirement struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values"`
}

// PoolsOf reads the NodePools among objects.
func PoolsOf(objects []*unstructured.Unstructured) ([]Pool, error) {
	var pools []Pool
	for _, obj := range objects {
		if obj.GetKind() != "NodePool" {
			continue
		}
		var read struct {
			Spec struct {
				Template struct {
					Metadata struct {
						Labels map[string]string `json:"labels"`
					} `json:"metadata"`
					Spec struct {
						Requirements []Requirement `json:"requirements"`
					} `json:"spec"`
				} `json:"template"`
			} `json:"spec"`
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &read); err != nil {
			return nil, fmt.Errorf("reading NodePool %s: %w", obj.GetName(), err)
		}
		pool := Pool{Name: obj.GetName(), Requirements: read.Spec.Template.Spec.Requirements}
		for key, value := range read.Spec.Template.Metadata.Labels {
			pool.Requirements = append(pool.Requirements, Requirement{Key: key, Operator: "In", Values: []string{value}})
		}
		pools = append(pools, pool)
	}
	return pools, nil
}

// Allowed are the shapes of the catalogue that at least one of the pools may open.
func Allowed(c *catalogue.Catalogue, pools []Pool) []Shape {
	var shapes []Shape
	for _, it := range c.InstanceTypes {
		if slices.ContainsFunc(pools, func(p Pool) bool { return p.allows(it) }) {
			shapes = append(shapes, shapeOf(it))
		}
	}
	return shapes
}

func shapeOf(it *catalogue.InstanceType) Shape {
	s := Shape{
		Name:      it.Name,
		CPUMilli:  int64(it.CPU)*1000 - reservedCPUMilli,
		MemoryMiB: int64(it.MemoryGiB)*1024 - reservedMemoryMiB,
	}
	if it.GPUs != nil && it.GPUs.Resource == string(gpuResource) {
		s.GPUs, s.GPUModel = int64(it.GPUs.Count), it.GPUs.Model
	}
	return s
}

// allows says that a pool may open a machine. Requirements about labels that the machine does not decide, for example
// the pool's own, are taken as met.
func (p Pool) allows(it *catalogue.InstanceType) bool {
	labels := labelsOf(it)
	namesClass := false
	for _, r := range p.Requirements {
		namesClass = namesClass || r.Key == v1alpha1.LabelHardwareClass
		if values, known := labels[r.Key]; known && !r.met(values) {
			return false
		}
	}
	return namesClass || it.Class != catalogue.Edge
}

// labelsOf are the values that a machine's labels may have; none means that it never has the label.
func labelsOf(it *catalogue.InstanceType) map[string][]string {
	labels := map[string][]string{
		corev1.LabelInstanceTypeStable: {it.Name},
		corev1.LabelArchStable:         {it.Architecture},
		corev1.LabelOSStable:           {"linux"},
		corev1.LabelTopologyZone:       it.Zones,
		"karpenter.sh/capacity-type":   capacityTypes(it),
		v1alpha1.LabelHardwareClass:    {string(it.Class)},
		v1alpha1.LabelGPUModel:         nil,
		familyLabel:                    {it.Family},
		sizeLabel:                      {strconv.Itoa(it.CPU)},
		cpuLabel:                       {strconv.Itoa(it.CPU)},
		memoryLabel:                    {fmt.Sprintf("%dGi", it.MemoryGiB)},
	}
	if it.GPUs != nil {
		labels[v1alpha1.LabelGPUModel] = []string{it.GPUs.Model}
	}
	return labels
}

func capacityTypes(it *catalogue.InstanceType) []string {
	types := []string{"on-demand"}
	if it.Price.Spot > 0 {
		types = append(types, "spot")
	}
	if it.Reserved != nil {
		types = append(types, "reserved")
	}
	return types
}

// met says that one of the values a label may have meets the requirement.
func (r Requirement) met(values []string) bool {
	listed := func(v string) bool { return slices.Contains(r.Values, v) }
	switch r.Operator {
	case "In":
		return slices.ContainsFunc(values, listed)
	case "NotIn":
		return len(values) == 0 || slices.ContainsFunc(values, func(v string) bool { return !listed(v) })
	case "Exists":
		return len(values) > 0
	case "DoesNotExist":
		return len(values) == 0
	default:
		return slices.ContainsFunc(values, r.compares)
	}
}

// compares is for Gt, Gte, Lt and Lte, which take one whole number.
func (r Requirement) compares(value string) bool {
	v, err := strconv.Atoi(value)
	if err != nil || len(r.Values) != 1 {
		return false
	}
	bound, err := strconv.Atoi(r.Values[0])
	if err != nil {
		return false
	}
	switch r.Operator {
	case "Gt":
		return v > bound
	case "Gte":
		return v >= bound
	case "Lt":
		return v < bound
	case "Lte":
		return v <= bound
	default:
		return false
	}
}
