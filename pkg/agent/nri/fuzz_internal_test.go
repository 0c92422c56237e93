package nri

import (
	"slices"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/agent/driver"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/host"
)

// FuzzIdentify: whatever a runtime says of a container, in its environment, its devices, its labels or its name, it gets no claim but one that is prepared
// for its pod, no server of another pod, and, where it claims a core that is not known, none at all.
func FuzzIdentify(f *testing.F) {
	const device = "cpu.mckube.io/claim="
	for _, seed := range []struct{ pod, name, label, environment, devices string }{
		{"p", "app", "app", "", device + "u-1"}, {"p", "x", "", driver.EnvClaim + "=ns/a", ""}, {"p", "app", "", "", ""}, {"p", "other", "app", "", ""},
		{"p", "app", "", driver.EnvClaim + "=ns/unknown\n" + driver.EnvClaim + "=ns/a", ""}, {"p", "app", "app", "", device + "\n" + device + "u-1"},
		{"q", "app", "app", driver.EnvClaim + "=ns/a", device + "u-1"}, {"p/app", "", "", driver.EnvClaim, device}, {"", "", "", "=", "vendor.com/gpu=0"},
		{"p", "direct", "", driver.EnvClaim + "=ns/shared", ""},
	} {
		f.Add(seed.pod, seed.name, seed.label, seed.environment, seed.devices)
	}
	records := []driver.Record{
		{UID: "u-1", Namespace: "ns", Name: "a", PodClaim: "rt-app", Pods: []types.UID{"p"}, Shares: []driver.Share{{Core: 1}}},
		{UID: "u-2", Namespace: "ns", Name: "shared", Pods: []types.UID{"p"}, Shares: []driver.Share{{Core: 2}}},
	}
	servers := []table.Server{{ID: "p/app", Core: 1}, {ID: "p/direct", Core: 3}}
	f.Fuzz(func(t *testing.T, uid, name, label, environment, devices string) {
		c := &api.Container{Name: name, Env: strings.Split(environment, "\n")}
		if label != "" {
			c.Labels = map[string]string{labelContainer: label}
		}
		for _, d := range strings.Split(devices, "\n") {
			c.CDIDevices = append(c.CDIDevices, &api.CDIDevice{Name: d})
		}
		ofPod, claims := servers, records
		if uid != "p" { // as the node's table and the driver answer
			ofPod, claims = nil, nil
		}
		s := identify(&api.PodSandbox{Uid: uid}, c, claims, ofPod)
		if s.pod != types.UID(uid) || s.server != nil && (uid != "p" || !slices.ContainsFunc(servers, func(v table.Server) bool { return v.ID == s.server.ID })) {
			t.Fatalf("pod %q gets %+v", uid, s)
		}
		if s.record != nil && (uid != "p" || !s.claimed || s.record.UID != "u-1" && s.record.UID != "u-2") {
			t.Fatalf("pod %q gets claim %+v", uid, s.record)
		}
		cores, err := coresOf(s)
		if s.ours() && (err == nil) != (s.server != nil || s.record != nil) {
			t.Fatalf("%+v is put on cores %v, %v", s, cores, err)
		}
		if cpus, wrong := host.ParseCPUList(adjustment(cores, table.First{}).GetLinux().GetResources().GetCpu().GetCpus()); wrong != nil || err == nil && len(cpus) != 1 {
			t.Fatalf("%+v is put on %v, %v", s, cpus, wrong)
		}
	})
}
