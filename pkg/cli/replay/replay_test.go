package replay_test

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cli/kube"
	"github.com/mainspring-rt/mainspring/pkg/cli/replay"
	"github.com/mainspring-rt/mainspring/pkg/cli/trace"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func fixture(t *testing.T) ([]trace.Pod, []trace.Machine) {
	t.Helper()
	f, err := os.Open("../trace/testdata/pods.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pods, err := trace.ReadPods(f, "pods.csv", nil)
	if err != nil {
		t.Fatal(err)
	}
	n, err := os.Open("../trace/testdata/nodes.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	machines, err := trace.ReadMachines(n, "nodes.csv", nil)
	if err != nil {
		t.Fatal(err)
	}
	return pods, machines
}

func TestPlanSelectsSortsAndScales(t *testing.T) {
	t.Parallel()
	s := time.Second
	pods := []trace.Pod{
		{Name: "late", Created: 300 * s, Deleted: 400 * s},
		{Name: "before", Created: 5 * s, Deleted: 6 * s},
		{Name: "first", Created: 100 * s, Deleted: 200 * s, Scheduled: 110 * s, WasScheduled: true},
		{Name: "second", Created: 200 * s, Deleted: 250 * s},
	}
	jobs := replay.Plan(pods, replay.Selection{From: 10 * s, Limit: 2, Speed: 10})
	if len(jobs) != 2 || jobs[0].Name != "first" || jobs[1].Name != "second" {
		t.Fatalf("got %+v", jobs)
	}
	if jobs[0].At != 0 || jobs[0].Work != 9*s {
		t.Errorf("first: at %v for %v, want 0s for 9s: it ran 90 s", jobs[0].At, jobs[0].Work)
	}
	if jobs[1].At != 10*s || jobs[1].Work != 5*s {
		t.Errorf("second: at %v for %v, want 10s for 5s", jobs[1].At, jobs[1].Work)
	}
	if replay.Span(jobs) != 100*s {
		t.Errorf("span %v", replay.Span(jobs))
	}
}

// A plan keeps the order and proportions of the trace at every speed.
func TestPlanKeepsProportions(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 50).Draw(t, "pods")
		pods := make([]trace.Pod, n)
		for i := range pods {
			created := time.Duration(rapid.Int64Range(0, 1e7).Draw(t, "created")) * time.Second
			pods[i] = trace.Pod{Created: created, Deleted: created + time.Duration(rapid.Int64Range(0, 1e6).Draw(t, "life"))*time.Second}
		}
		sel := replay.Selection{
			From: time.Duration(rapid.Int64Range(0, 1e7).Draw(t, "from")) * time.Second, Limit: rapid.IntRange(0, 60).Draw(t, "limit"),
			Speed: rapid.Float64Range(0.5, 10000).Draw(t, "speed"),
		}
		jobs := replay.Plan(pods, sel)
		if sel.Limit > 0 && len(jobs) > sel.Limit {
			t.Fatalf("%d jobs, limit %d", len(jobs), sel.Limit)
		}
		for i, j := range jobs {
			if j.Created < sel.From || j.At < 0 || j.Work < 0 || (i > 0 && j.At < jobs[i-1].At) {
				t.Fatalf("job %d: %+v", i, j)
			}
			if back := j.At.Seconds() * sel.Speed; math.Abs(back-(j.Created-jobs[0].Created).Seconds()) > 1e-3 {
				t.Fatalf("job %d is at %v s of the trace, want %v", i, back, j.Created-jobs[0].Created)
			}
		}
	})
}

func TestMisfitsSayWhy(t *testing.T) {
	t.Parallel()
	shapes := []replay.Shape{
		{Name: "plain", CPUMilli: 64000, MemoryMiB: 128 << 10},
		{Name: "t4", CPUMilli: 16000, MemoryMiB: 64 << 10, GPUs: 2, GPUModel: "T4"},
		{Name: "a100", CPUMilli: 96000, MemoryMiB: 512 << 10, GPUs: 8, GPUModel: "A100"},
	}
	for name, c := range map[string]struct {
		pod  trace.Pod
		want string
	}{
		"fits":          {trace.Pod{CPUMilli: 1000, MemoryMiB: 1024, GPUs: 1, GPUModels: []string{"V100", "T4"}}, ""},
		"CPU":           {trace.Pod{CPUMilli: 120200}, "CPU: wants 120.2 cores, the largest allowed machine has 96 cores"},
		"two things":    {trace.Pod{CPUMilli: 120000, MemoryMiB: 720 << 10}, "CPU: wants 120 cores, the largest allowed machine has 96 cores; memory: wants 720 GiB, the largest allowed machine has 512 GiB"},
		"GPUs":          {trace.Pod{GPUs: 16}, "GPUs: wants 16, the largest allowed machine has 8"},
		"model":         {trace.Pod{GPUs: 1, GPUModels: []string{"V100", "P100"}}, "GPU model V100 or P100: no allowed machine has it"},
		"not together":  {trace.Pod{CPUMilli: 32000, GPUs: 1, GPUModels: []string{"T4"}}, "CPU: wants 32 cores, the largest machine that has the rest has 16 cores"},
		"GPUs of model": {trace.Pod{GPUs: 4, GPUModels: []string{"T4"}}, "GPUs: wants 4, the largest machine that has the rest has 2"},
	} {
		misfits := replay.Misfits([]replay.Job{{Pod: c.pod}}, shapes)
		switch {
		case c.want == "" && len(misfits) > 0:
			t.Errorf("%s: does not fit: %s", name, misfits[0].Why)
		case c.want != "" && (len(misfits) != 1 || misfits[0].Why != c.want):
			t.Errorf("%s: got %+v, want %s", name, misfits, c.want)
		}
	}
	if got := replay.Misfits([]replay.Job{{}}, nil); len(got) != 1 || got[0].Why != "no machine is allowed" {
		t.Errorf("without machines: %+v", got)
	}
}

// Every pod either fits a machine or is told why not, in words.
func TestEveryMisfitHasAReason(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.Int64Range(0, 5)
		model := rapid.SampledFrom([]string{"T4", "A100", "V100"})
		var shapes []replay.Shape
		for range rapid.IntRange(0, 4).Draw(t, "shapes") {
			s := replay.Shape{CPUMilli: amount.Draw(t, "cpu"), MemoryMiB: amount.Draw(t, "memory"), GPUs: amount.Draw(t, "gpus")}
			if s.GPUs > 0 {
				s.GPUModel = model.Draw(t, "model")
			}
			shapes = append(shapes, s)
		}
		pod := trace.Pod{CPUMilli: amount.Draw(t, "cpu"), MemoryMiB: amount.Draw(t, "memory"), GPUs: amount.Draw(t, "gpus"),
			GPUModels: rapid.SliceOfN(model, 0, 2).Draw(t, "models")}
		misfits := replay.Misfits([]replay.Job{{Pod: pod}}, shapes)
		fits := false
		for _, s := range shapes {
			fits = fits || s.Fits(pod)
		}
		if fits != (len(misfits) == 0) {
			t.Fatalf("fits %v, misfits %v", fits, misfits)
		}
		if len(misfits) == 1 && misfits[0].Why == "" {
			t.Fatalf("no reason for %+v on %+v", pod, shapes)
		}
	})
}

func TestFixtureOnItsOwnMachines(t *testing.T) {
	t.Parallel()
	pods, machines := fixture(t)
	shapes := replay.ShapesOf(machines)
	if len(shapes) != 4 {
		t.Errorf("%d shapes, want 4", len(shapes))
	}
	misfits := replay.Misfits(replay.Plan(pods, replay.Selection{Speed: 1}), shapes)
	var names []string
	for _, m := range misfits {
		names = append(names, m.Pod)
	}
	if strings.Join(names, " ") != "pod-17 pod-23" {
		t.Errorf("misfits: %+v", misfits)
	}
}

func TestManifest(t *testing.T) {
	t.Parallel()
	job := func(p trace.Pod) replay.Job { return replay.Job{Pod: p} }
	whole := replay.Manifest(job(trace.Pod{Name: "Job/7", CPUMilli: 1500, MemoryMiB: 2048, GPUs: 2, GPUModels: []string{"T4", "A10"}, QoS: "BE"}), "ns", 7, 1)
	if whole.Name != "job-7-again-1" || whole.Namespace != "ns" || whole.Annotations["karpenter.sh/do-not-disrupt"] != "true" {
		t.Errorf("got %s/%s %v", whole.Namespace, whole.Name, whole.Annotations)
	}
	r := whole.Spec.Containers[0].Resources
	for name, want := range map[corev1.ResourceName]string{"cpu": "1500m", "memory": "2Gi", "nvidia.com/gpu": "2", v1alpha1.ResourceGPUMilli: "2k"} {
		if q := r.Requests[name]; q.String() != want {
			t.Errorf("%s: got %s, want %s", name, q.String(), want)
		}
	}
	term := whole.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0]
	if term.Key != v1alpha1.LabelGPUModel || strings.Join(term.Values, "|") != "T4|A10" {
		t.Errorf("affinity %+v", term)
	}
	part := replay.Manifest(job(trace.Pod{Name: "p", GPUs: 1, GPUMilli: 460, QoS: "LS"}), "ns", 0, 0)
	r = part.Spec.Containers[0].Resources
	if _, ok := r.Requests["nvidia.com/gpu"]; ok || part.Annotations != nil || part.Spec.Affinity != nil {
		t.Errorf("a fraction asks for a whole GPU, or a service may not move: %+v", part)
	}
	if q := r.Limits[v1alpha1.ResourceGPUMilli]; q.Value() != 460 {
		t.Errorf("got %s", q.String())
	}
	plain := replay.Manifest(job(trace.Pod{Name: "p", CPUMilli: 1}), "ns", 0, 0)
	if len(plain.Spec.Containers[0].Resources.Limits) != 0 {
		t.Errorf("a pod without GPU has limits")
	}
}

const pools = `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: small}
spec:
  template:
    spec:
      requirements:
      - {key: karpenter.kwok.sh/instance-cpu, operator: Lt, values: ["5"]}
      - {key: kubernetes.io/arch, operator: In, values: [amd64]}
      - {key: mckube.io/gpu-model, operator: DoesNotExist}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: t4}
spec:
  template:
    metadata: {labels: {mckube.io/gpu-model: T4, team: a}}
---
kind: Namespace
metadata: {name: other}
`

func TestAllowedMachines(t *testing.T) {
	t.Parallel()
	objects, err := kube.Parse("pools.yaml", []byte(pools))
	if err != nil {
		t.Fatal(err)
	}
	read, err := replay.PoolsOf(objects)
	if err != nil || len(read) != 2 {
		t.Fatalf("got %v, %v", read, err)
	}
	c, err := catalogue.Default()
	if err != nil {
		t.Fatal(err)
	}
	shapes := replay.Allowed(c, read)
	found := map[string]bool{}
	for _, s := range shapes {
		found[s.Name] = true
		if s.GPUModel != "" && s.GPUModel != "T4" {
			t.Errorf("%s has a %s", s.Name, s.GPUModel)
		}
	}
	for name, want := range map[string]bool{
		"c-4x-amd64-linux": true, "c-8x-amd64-linux": false, "c-4x-arm64-linux": false, "t4-1g-4x-amd64-linux": true, "edge-atom-4x-amd64-linux": false,
	} {
		if found[name] != want {
			t.Errorf("%s: allowed %v, want %v", name, found[name], want)
		}
	}
}

func TestEdgeMachinesMustBeNamed(t *testing.T) {
	t.Parallel()
	c, err := catalogue.Default()
	if err != nil {
		t.Fatal(err)
	}
	count := func(r ...replay.Requirement) int { return len(replay.Allowed(c, []replay.Pool{{Requirements: r}})) }
	edge := count(replay.Requirement{Key: v1alpha1.LabelHardwareClass, Operator: "In", Values: []string{"edge"}})
	all := count(replay.Requirement{Key: v1alpha1.LabelHardwareClass, Operator: "Exists"})
	if edge == 0 || all != len(c.InstanceTypes) || count() != all-edge {
		t.Errorf("edge %d, all %d, unnamed %d", edge, all, count())
	}
}
