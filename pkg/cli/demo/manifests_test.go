package demo

import (
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/cli/kube"
)

// The manifests parse, and the number of pods that the chapters wait for is what they ask for.
func TestManifestsAskForThePodsThatTheStoryWaitsFor(t *testing.T) {
	t.Parallel()
	want := map[string]int64{"pools.yaml": 0, "workload.yaml": allPods, "expiry.yaml": crawlers}
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
		}
		if replicas != pods {
			t.Errorf("%s asks for %d pods, the story waits for %d", name, replicas, pods)
		}
	}
}
