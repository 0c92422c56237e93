package replay

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/cli/trace"
)

// Shape is what a kind of machine offers to pods.
type Shape struct {
	Name      string
	CPUMilli  int64
	MemoryMiB int64
	GPUs      int64
	GPUModel  string
}

// Misfit is a pod that no machine of a set can hold, even an empty one, and why.
type Misfit struct {
	Pod string `json:"pod"`
	Why string `json:"why"`
}

// Fits says that an empty machine of this shape holds the pod.
func (s Shape) Fits(p trace.Pod) bool {
	return p.CPUMilli <= s.CPUMilli && p.MemoryMiB <= s.MemoryMiB && s.gpuFits(p)
}

func (s Shape) gpuFits(p trace.Pod) bool {
	return p.GPUs <= s.GPUs && (p.GPUs == 0 || s.modelFits(p))
}

func (s Shape) modelFits(p trace.Pod) bool {
	return len(p.GPUModels) == 0 || slices.Contains(p.GPUModels, s.GPUModel)
}

// Misfits are the jobs that none of the shapes holds.
func Misfits(jobs []Job, shapes []Shape) []Misfit {
	var all []Misfit
	for _, j := range jobs {
		if !slices.ContainsFunc(shapes, func(s Shape) bool { return s.Fits(j.Pod) }) {
			all = append(all, Misfit{Pod: j.Name, Why: why(j.Pod, shapes)})
		}
	}
	return all
}

// why says which resource is short, with the largest machine there is for it.
func why(p trace.Pod, shapes []Shape) string {
	if len(shapes) == 0 {
		return "no machine is allowed"
	}
	if p.GPUs > 0 && len(p.GPUModels) > 0 && !slices.ContainsFunc(shapes, func(s Shape) bool { return s.GPUs > 0 && s.modelFits(p) }) {
		return fmt.Sprintf("GPU model %s: no allowed machine has it", strings.Join(p.GPUModels, " or "))
	}
	var short []string
	for _, r := range measures {
		if largest := r.largest(shapes, func(Shape) bool { return true }); r.wants(p) > largest {
			short = append(short, r.words(p, largest, "the largest allowed machine has"))
		}
	}
	if len(short) > 0 {
		return strings.Join(short, "; ")
	}
	return together(p, shapes)
}

// together explains a pod whose every resource is had somewhere, but not on one machine.
func together(p trace.Pod, shapes []Shape) string {
	var words []string
	for _, r := range measures {
		others := func(s Shape) bool {
			return !slices.ContainsFunc(measures, func(o measure) bool { return o.name != r.name && o.wants(p) > o.has(s) }) &&
				(p.GPUs == 0 || s.modelFits(p))
		}
		if !slices.ContainsFunc(shapes, others) {
			continue
		}
		if largest := r.largest(shapes, others); r.wants(p) > largest {
			words = append(words, r.words(p, largest, "the largest machine that has the rest has"))
		}
	}
	if len(words) == 0 {
		return "each resource is had on some allowed machine, but no two of them on one"
	}
	return strings.Join(words, "; ")
}

type measure struct {
	name  string
	unit  string
	scale float64 // of the unit
	wants func(trace.Pod) int64
	has   func(Shape) int64
}

var measures = []measure{
	{"CPU", "cores", 1000, func(p trace.Pod) int64 { return p.CPUMilli }, func(s Shape) int64 { return s.CPUMilli }},
	{"memory", "GiB", 1024, func(p trace.Pod) int64 { return p.MemoryMiB }, func(s Shape) int64 { return s.MemoryMiB }},
	{"GPUs", "", 1, func(p trace.Pod) int64 { return p.GPUs }, func(s Shape) int64 { return s.GPUs }},
}

func (r measure) largest(shapes []Shape, among func(Shape) bool) int64 {
	var largest int64
	for _, s := range shapes {
		if among(s) {
			largest = max(largest, r.has(s))
		}
	}
	return largest
}

func (r measure) words(p trace.Pod, largest int64, has string) string {
	return strings.TrimSpace(fmt.Sprintf("%s: wants %.4g %s", r.name, float64(r.wants(p))/r.scale, r.unit)) + ", " +
		strings.TrimSpace(fmt.Sprintf("%s %.4g %s", has, float64(largest)/r.scale, r.unit))
}

// ShapesOf are the different shapes of recorded machines.
func ShapesOf(machines []trace.Machine) []Shape {
	seen := map[Shape]bool{}
	var shapes []Shape
	for _, m := range machines {
		s := Shape{CPUMilli: m.CPUMilli, MemoryMiB: m.MemoryMiB, GPUs: m.GPUs, GPUModel: m.GPUModel}
		if seen[s] {
			continue
		}
		seen[s] = true
		s.Name = fmt.Sprintf("%g cores, %g GiB", float64(m.CPUMilli)/1000, float64(m.MemoryMiB)/1024)
		if m.GPUs > 0 {
			s.Name += fmt.Sprintf(", %d %s", m.GPUs, m.GPUModel)
		}
		shapes = append(shapes, s)
	}
	return shapes
}
