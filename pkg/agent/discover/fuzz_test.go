package discover_test

import (
	"encoding/json"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mainspring-rt/mainspring/pkg/agent/discover"
)

// FuzzContainers: whatever a pod says of itself, what caches keep of it says the same, one that has ended has no containers, and none has an ID that is
// not that of a container which runs.
func FuzzContainers(f *testing.F) {
	full := pod("a", runs("app", 1), ended("side", 2))
	full.Annotations = map[string]string{"kubernetes.io/config.mirror": "0123456789abcdef"}
	whole, err := json.Marshal(full)
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		string(whole), `{"metadata":{"uid":"a"},"spec":{"containers":[{"name":"app"},{"name":"app"}]},"status":{"containerStatuses":[{"name":"stranger","state":{"running":{}},"containerID":"x"}]}}`,
		`{"status":{"phase":"Failed","containerStatuses":[{}]},"spec":{"initContainers":[{}]}}`, "{}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		one := &corev1.Pod{}
		if json.Unmarshal(data, one) != nil {
			return
		}
		found := discover.Containers([]*corev1.Pod{one})
		slim, err := discover.Slim(one)
		if err != nil {
			t.Fatal(err)
		}
		if kept := discover.Containers([]*corev1.Pod{slim.(*corev1.Pod)}); !maps.Equal(kept, found) {
			t.Fatalf("of %s are kept %v; want %v", data, kept, found)
		}
		if over := one.Status.Phase == corev1.PodSucceeded || one.Status.Phase == corev1.PodFailed; over && len(found) > 0 {
			t.Fatalf("%s: %v", data, found)
		}
		running := map[string]bool{"": true}
		for _, list := range [][]corev1.ContainerStatus{one.Status.ContainerStatuses, one.Status.InitContainerStatuses} {
			for _, s := range list {
				running[s.ContainerID] = running[s.ContainerID] || s.State.Running != nil
			}
		}
		for key, c := range found {
			if key.Pod != one.UID || !running[c.ID] {
				t.Fatalf("%s: %v is %+v", data, key, c)
			}
		}
	})
}
