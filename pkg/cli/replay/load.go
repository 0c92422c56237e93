package replay

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mainspring-rt/mainspring/pkg/cli/kube"
	"github.com/mainspring-rt/mainspring/pkg/cli/trace"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
)

//go:embed nodepools.yaml
var defaultPools []byte

// Request is what a user asks to be replayed.
type Request struct {
	PodFile  string
	NodeFile string // "" = none
	PoolFile string // "" = DefaultPools
	Maps     []string
	Select   Selection
}

// Prepared is a replay that is ready to run.
type Prepared struct {
	Jobs  []Job // those that fit an allowed machine
	Pools []*unstructured.Unstructured
	Input Input
	Fit   Fit
}

// Prepare reads and checks everything a replay needs, before any cluster is started.
func Prepare(r Request) (Prepared, error) {
	podMap, nodeMap, err := trace.ParseMapping(r.Maps)
	if err != nil {
		return Prepared{}, err
	}
	pods, err := read(r.PodFile, func(f *os.File) ([]trace.Pod, error) { return trace.ReadPods(f, r.PodFile, podMap) })
	if err != nil {
		return Prepared{}, err
	}
	var machines []trace.Machine
	if r.NodeFile != "" {
		machines, err = read(r.NodeFile, func(f *os.File) ([]trace.Machine, error) { return trace.ReadMachines(f, r.NodeFile, nodeMap) })
		if err != nil {
			return Prepared{}, err
		}
	}
	objects, err := poolObjects(r.PoolFile)
	if err != nil {
		return Prepared{}, err
	}
	return prepare(r, pods, machines, objects)
}

func read[T any](path string, parse func(*os.File) ([]T, error)) ([]T, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening trace: %w", err)
	}
	defer f.Close()
	return parse(f)
}

func poolObjects(path string) ([]*unstructured.Unstructured, error) {
	if path == "" {
		return kube.Parse("the default NodePools", defaultPools)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading NodePools: %w", err)
	}
	return kube.Parse(path, data)
}

func prepare(r Request, pods []trace.Pod, machines []trace.Machine, objects []*unstructured.Unstructured) (Prepared, error) {
	jobs := Plan(pods, r.Select)
	if len(jobs) == 0 {
		return Prepared{}, fmt.Errorf("%s: none of its %d pods is created at or after %g s", r.PodFile, len(pods), r.Select.From.Seconds())
	}
	pools, err := PoolsOf(objects)
	if err != nil {
		return Prepared{}, err
	}
	if len(pools) == 0 {
		return Prepared{}, fmt.Errorf("%s: it has no NodePool; want at least one", r.PoolFile)
	}
	c, err := catalogue.Default()
	if err != nil {
		return Prepared{}, fmt.Errorf("reading the catalogue: %w", err)
	}
	allowed, own := Allowed(c, pools), ShapesOf(machines)
	out := Prepared{Pools: objects, Input: inputOf(r, jobs, machines, own)}
	out.Fit = Fit{CatalogueTypes: len(allowed), Misfits: Misfits(jobs, allowed)}
	out.Fit.OnCatalogue = 1 - share(len(out.Fit.Misfits), len(jobs))
	if len(own) > 0 {
		out.Fit.MisfitsOnMachine = Misfits(jobs, own)
		out.Fit.OnTraceMachines = 1 - share(len(out.Fit.MisfitsOnMachine), len(jobs))
	}
	out.Jobs = without(jobs, out.Fit.Misfits)
	return out, nil
}

func inputOf(r Request, jobs []Job, machines []trace.Machine, shapes []Shape) Input {
	in := Input{
		Pods: filepath.Base(r.PodFile), FromSeconds: r.Select.From.Seconds(), Limit: r.Select.Limit, Speed: r.Select.Speed,
		Selected: len(jobs), SpanDays: Span(jobs).Hours() / 24, TraceNodes: len(machines), TraceShapes: len(shapes),
	}
	if r.NodeFile != "" {
		in.Nodes = filepath.Base(r.NodeFile)
	}
	if r.PoolFile != "" {
		in.NodePoolFile = filepath.Base(r.PoolFile)
	}
	for _, j := range jobs {
		in.WantingGPU += one(j.GPUs > 0)
		in.Fractional += one(j.FractionalGPU())
	}
	return in
}

func without(jobs []Job, misfits []Misfit) []Job {
	misfit := map[string]bool{}
	for _, m := range misfits {
		misfit[m.Pod] = true
	}
	var kept []Job
	for _, j := range jobs {
		if !misfit[j.Name] {
			kept = append(kept, j)
		}
	}
	return kept
}

func share(part, whole int) float64 { return float64(part) / float64(max(whole, 1)) }
