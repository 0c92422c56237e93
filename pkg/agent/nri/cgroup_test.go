package nri_test

import (
	"path"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/nri"
	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/host/hosttest"
)

const containerID = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// What the kubelet asks the runtime for is where the runtime makes it.
func TestGroupPathIsWhereTheGroupWillBe(t *testing.T) {
	const uid = "8d0f1a2b-0000-4000-8000-00000000abcd"
	underscored := strings.ReplaceAll(uid, "-", "_")
	for cgroups, want := range map[string]struct {
		kubelet hosttest.Kubelet
		qos     string
	}{
		"/kubepods/pod" + uid + "/" + containerID:                                       {hosttest.Kubelet{}, hosttest.Guaranteed},
		"/kubepods/burstable/pod" + uid + "/" + containerID:                             {hosttest.Kubelet{}, hosttest.Burstable},
		"/node2/kubepods/besteffort/pod" + uid + "/" + containerID:                      {hosttest.Kubelet{Root: "node2"}, hosttest.BestEffort},
		"kubepods-pod" + underscored + ".slice:cri-containerd:" + containerID:           {hosttest.Kubelet{Systemd: true, Runtime: host.Containerd}, hosttest.Guaranteed},
		"kubepods-burstable-pod" + underscored + ".slice:cri-containerd:" + containerID: {hosttest.Kubelet{Systemd: true, Runtime: host.Containerd}, hosttest.Burstable},
		"kubepods-besteffort-pod" + underscored + ".slice:crio:" + containerID:          {hosttest.Kubelet{Systemd: true, Runtime: host.CRIO}, hosttest.BestEffort},
	} {
		got, err := nri.GroupPath(cgroups)
		if err != nil {
			t.Errorf("%s: %v", cgroups, err)
			continue
		}
		tree := hosttest.Lab(t)
		if there := tree.Container(want.kubelet, want.qos, uid, containerID); got != there {
			t.Errorf("%s is %s, the runtime makes %s", cgroups, got, there)
		}
	}
}

func TestGroupPathRefuses(t *testing.T) {
	for _, cgroups := range []string{
		"", "/", "..", "/kubepods/../..", "a:b", "a:b:c", "a.slice:b:c:d", "a--b.slice:cri:x", ".slice:cri:x", "a.slice:cri:", "a/b.slice:cri:x",
		strings.Repeat("a-", 40) + "a.slice:cri:x",
	} {
		if got, err := nri.GroupPath(cgroups); err == nil {
			t.Errorf("%q is %s", cgroups, got)
		}
	}
	if got, err := nri.GroupPath("-.slice::x"); err != nil || got != "/x.scope" {
		t.Errorf("the root slice: %s, %v", got, err)
	}
}

func FuzzGroupPath(f *testing.F) {
	for _, seed := range []string{"/kubepods/pod1/a", "kubepods-burstable-pod1.slice:cri-containerd:a", "..", "::", "-.slice::x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, cgroups string) {
		got, err := nri.GroupPath(cgroups)
		if err == nil && (!strings.HasPrefix(got, "/") || got == "/" || path.Clean(got) != got) {
			t.Fatalf("%q is %q", cgroups, got)
		}
	})
}
