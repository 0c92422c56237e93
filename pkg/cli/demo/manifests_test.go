package demo

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/cli/kube"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// The manifests parse, and the number of pods that the chapters wait for is what they ask for.
func TestManifestsAskForThePodsThatTheStoryWaitsFor(t *testing.T) {
	t.Parallel()
	want := map[string]int64{
		"pools.yaml": 0, "workload.yaml": allPods, "expiry.yaml": crawlers,
		"realtime.yaml": int64(len(firstPods)), "brake.yaml": 1, "crane.yaml": int64(len(laterPods)),
		"plant.yaml": 5, "plant-full.yaml": 2, "plant-second.yaml": 3,
	}
	for name, pods := range want {
		data, err := manifests.ReadFile("manifests/" + name)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := kube.Parse(name, data)
		if err != nil {
			t.Fatal(err)
		}
		var replicas int64
		for _, obj := range objects {
			spec, _ := obj.Object["spec"].(map[string]any)
			if n, ok := spec["replicas"].(int64); ok && obj.GetKind() == "Deployment" {
				replicas += n
			}
			if obj.GetKind() == "Pod" {
				replicas++
			}
		}
		if replicas != pods {
			t.Errorf("%s asks for %d pods, the story waits for %d", name, replicas, pods)
		}
	}
}

// The first pods fill the cores as the story tells: core 2 has no room for brake, and the machine no core for the pods after it.
func TestRealtimePodsFillTheCoresAsTold(t *testing.T) {
	t.Parallel()
	const granularity, capacity = 100, 900_000
	charge := func(file string) map[string]rt.PPM {
		objects, err := manifest(file)
		if err != nil {
			t.Fatal(err)
		}
		charges := map[string]rt.PPM{}
		for _, obj := range objects {
			m := &mcv1.McKube{}
			if obj.GetKind() != "McKube" {
				continue
			}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, m); err != nil {
				t.Fatal(err)
			}
			server, err := rtdra.ServerOf(m, "uid", m.Name)
			if err != nil {
				t.Fatal(err)
			}
			charges[m.Spec.Podname] = server.Charge(granularity)
			if prefers, ok := firstPods[m.Spec.Podname]; ok && !slices.Equal(server.Preferred, []int{prefers}) {
				t.Errorf("%s prefers %v, the story says %d", m.Name, server.Preferred, prefers)
			}
		}
		return charges
	}
	used := map[int]rt.PPM{}
	for pod, ppm := range charge("realtime.yaml") {
		used[firstPods[pod]] += ppm
	}
	brake, recorder := charge("brake.yaml")[brakePod], charge("realtime.yaml")["recorder"]
	for core, ppm := range used {
		if ppm > capacity {
			t.Errorf("core %d is overfull: %d ppm", core, ppm)
		}
	}
	if used[brakeCore]+brake <= capacity || used[3]+recorder > capacity || used[brakeCore]-recorder+brake > capacity {
		t.Errorf("brake, %d ppm, moves nobody, or nobody can be moved: %v", brake, used)
	}
	used[3] += brake // there the scheduler has found room for it
	for pod, ppm := range charge("crane.yaml") {
		left := rt.PPM(0)
		for core := range used {
			left += capacity - used[core]
			if used[core]+ppm <= capacity {
				t.Errorf("%s fits on core %d", pod, core)
			}
		}
		if left < ppm {
			t.Errorf("%s needs %d ppm, the cores have %d left together", pod, ppm, left)
		}
	}
}
