package trace

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// ReadPods reads the pods of a CSV file; file is its name in errors.
func ReadPods(r io.Reader, file string, m Mapping) ([]Pod, error) {
	var pods []Pod
	seen := map[string]int{}
	err := readTable(r, file, podFields, m, func(r row) {
		pod := readPod(r)
		if first, twice := seen[pod.Name]; twice && pod.Name != "" {
			r.fault("name", fmt.Sprintf("another name: line %d has this one", first))
		}
		seen[pod.Name] = r.line
		pods = append(pods, pod)
	})
	if err != nil {
		return nil, err
	}
	return pods, nil
}

func readPod(r row) Pod {
	p := Pod{
		Line:      r.line,
		Name:      r.text("name"),
		CPUMilli:  r.amount("cpu_milli"),
		MemoryMiB: r.amount("memory_mib"),
		GPUs:      r.whole("num_gpu", 0, 1024, 0),
		GPUMilli:  r.whole("gpu_milli", 0, 1000, 1000),
		GPUModels: models(r.raw("gpu_spec")),
		QoS:       r.raw("qos"),
		Phase:     r.raw("pod_phase"),
	}
	if p.GPUs == 1 && p.GPUMilli == 0 && r.raw("gpu_milli") != "" {
		r.fault("gpu_milli", "1 to 1000, because the pod asks for one GPU")
	}
	readTimes(r, &p)
	return p
}

func readTimes(r row, p *Pod) {
	created, ok := r.moment("creation_time")
	if !ok && r.raw("creation_time") == "" {
		r.fault("creation_time", "a time; every pod needs one")
	}
	p.Created = created
	p.Deleted = readEnd(r, created)
	if at, ok := r.moment("scheduled_time"); ok {
		p.Scheduled, p.WasScheduled = at, true
		if at < created || at > p.Deleted {
			r.fault("scheduled_time", "a time between creation and deletion, or nothing when the pod was never placed")
		}
	}
}

// readEnd is the deletion, written as a time or, in traces without it, as a duration from creation.
func readEnd(r row, created time.Duration) time.Duration {
	name, from := "deletion_time", time.Duration(0)
	if !r.has(name) {
		name, from = "duration", created
	}
	if !r.has(name) {
		r.faults.add(fmt.Errorf("%s:%d: neither deletion_time nor duration has a column; want one of them, by --map", r.file, r.line))
		return created
	}
	at, ok := r.moment(name)
	if !ok && r.raw(name) == "" {
		r.fault(name, "a time; every pod needs an end")
	}
	if ok && from+at < created {
		r.fault(name, "a time that is not before creation_time")
	}
	return max(created, from+at)
}

func models(spec string) []string {
	var all []string
	for _, model := range strings.Split(spec, "|") {
		if model = strings.TrimSpace(model); model != "" {
			all = append(all, model)
		}
	}
	return all
}

// ReadMachines reads the machines of a CSV file; file is its name in errors.
func ReadMachines(r io.Reader, file string, m Mapping) ([]Machine, error) {
	var machines []Machine
	err := readTable(r, file, machineFields, m, func(r row) {
		machine := Machine{
			Line:      r.line,
			Name:      r.text("sn"),
			CPUMilli:  r.amount("cpu_milli"),
			MemoryMiB: r.amount("memory_mib"),
			GPUs:      r.whole("gpu", 0, 1024, 0),
			GPUModel:  r.raw("model"),
		}
		machines = append(machines, machine)
	})
	if err != nil {
		return nil, err
	}
	return machines, nil
}
