package rtdra

import (
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// attributes is where CEL finds those of our driver.
const attributes = `device.attributes["` + v1alpha1.DriverCPU + `"]`

// Selectors are the cores that may serve s when granularity microseconds are charged to its budget. A
// core that does not say what is asked does not match, instead of failing the whole allocation.
func Selectors(s rt.Server, granularity int64) []resourcev1.DeviceSelector {
	list := []resourcev1.DeviceSelector{selector(compare(v1alpha1.AttributeGranularity, "<=", granularity))}
	if s.Limited && s.MayEscalate() {
		list = append(list, selector(compare(v1alpha1.AttributeEscalationReserve, ">=", int64(s.Step()))))
	}
	return list
}

func selector(expression string) resourcev1.DeviceSelector {
	return resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}
}

func compare(attribute, operator string, value int64) string {
	return fmt.Sprintf("%q in %s && %s.%s %s %d", attribute, attributes, attributes, attribute, operator, value)
}

// coreIn holds on the given cores, which ascend. Runs of cores are written as ranges: the length of an
// expression is limited, that of a cpuset list's ranges is not.
func coreIn(cores []int) string {
	id := attributes + "." + v1alpha1.AttributeCoreID
	var runs []string
	for start := 0; start < len(cores); {
		end := start
		for end+1 < len(cores) && cores[end+1] == cores[end]+1 {
			end++
		}
		if start == end {
			runs = append(runs, fmt.Sprintf("%s == %d", id, cores[start]))
		} else {
			runs = append(runs, fmt.Sprintf("%s >= %d && %s <= %d", id, cores[start], id, cores[end]))
		}
		start = end + 1
	}
	return fmt.Sprintf("%q in %s && (%s)", v1alpha1.AttributeCoreID, attributes, strings.Join(runs, " || "))
}
