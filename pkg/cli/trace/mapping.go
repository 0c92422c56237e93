package trace

import (
	"fmt"
	"slices"
	"strings"
)

// Column says where a field is found and in which unit it is written.
type Column struct {
	Name string
	Unit string
}

// Mapping gives the column of each field.
type Mapping map[string]Column

// field describes one thing that can be read.
type field struct {
	name     string
	required bool
	units    []string // the first is the default
}

var (
	cpuUnits    = []string{"milli", "cores"}
	memoryUnits = []string{"mib", "gib", "bytes"}
	timeUnits   = []string{"s", "ms", "us"}
)

var podFields = []field{
	{name: "name", required: true},
	{name: "cpu_milli", required: true, units: cpuUnits},
	{name: "memory_mib", required: true, units: memoryUnits},
	{name: "num_gpu"},
	{name: "gpu_milli"},
	{name: "gpu_spec"},
	{name: "qos"},
	{name: "pod_phase"},
	{name: "creation_time", required: true, units: timeUnits},
	{name: "deletion_time", units: timeUnits},
	{name: "duration", units: timeUnits},
	{name: "scheduled_time", units: timeUnits},
}

var machineFields = []field{
	{name: "sn", required: true},
	{name: "cpu_milli", required: true, units: cpuUnits},
	{name: "memory_mib", required: true, units: memoryUnits},
	{name: "gpu"},
	{name: "model"},
}

// machinePrefix marks the fields of the machine file in a mapping given by a user.
const machinePrefix = "node."

// ParseMapping reads "field=column" or "field=column:unit" entries. Fields of the machine file are written with the
// prefix "node.". It returns the mapping of the pod file and that of the machine file; fields left out keep the column
// of their own name.
func ParseMapping(entries []string) (pods, machines Mapping, err error) {
	pods, machines = Mapping{}, Mapping{}
	for _, entry := range entries {
		name, column, found := strings.Cut(entry, "=")
		if !found || name == "" || column == "" {
			return nil, nil, fmt.Errorf("--map %q: want field=column or field=column:unit", entry)
		}
		target, fields := pods, podFields
		if short, isMachine := strings.CutPrefix(name, machinePrefix); isMachine {
			target, fields, name = machines, machineFields, short
		}
		if err := target.set(fields, name, column); err != nil {
			return nil, nil, fmt.Errorf("--map %q: %w", entry, err)
		}
	}
	return pods, machines, nil
}

func (m Mapping) set(fields []field, name, column string) error {
	i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
	if i < 0 {
		return fmt.Errorf("field %q is unknown; want one of %s", name, names(fields))
	}
	if _, twice := m[name]; twice {
		return fmt.Errorf("field %q is mapped twice", name)
	}
	column, unit, hasUnit := strings.Cut(column, ":")
	if hasUnit && !slices.Contains(fields[i].units, unit) {
		return fmt.Errorf("unit %q does not fit field %q; want %s", unit, name, unitWords(fields[i].units))
	}
	m[name] = Column{Name: column, Unit: unit}
	return nil
}

func (m Mapping) column(f field) Column {
	c, ok := m[f.name]
	if !ok {
		c.Name = f.name
	}
	if c.Unit == "" && len(f.units) > 0 {
		c.Unit = f.units[0]
	}
	return c
}

func names(fields []field) string {
	all := make([]string, 0, len(fields))
	for _, f := range fields {
		all = append(all, f.name)
	}
	return strings.Join(all, ", ")
}

func unitWords(units []string) string {
	if len(units) == 0 {
		return "no unit"
	}
	return strings.Join(units, ", ")
}
