package nri

import (
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/agent/driver"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// labelContainer is where the kubelet puts the container's name for the runtime.
const labelContainer = "io.kubernetes.container.name"

// subject is a container with what is known of it.
type subject struct {
	pod types.UID
	// name in the pod's spec.
	name string
	// claimed: it uses a claim of ours. record is that claim, nil when it is not prepared here.
	claimed bool
	record  *driver.Record
	// server of the node's table, nil when it is not there.
	server *table.Server
}

// ours tells whether the container is a real-time one.
func (s subject) ours() bool { return s.claimed || s.server != nil }

// identify finds a container's claim among those that are prepared for its pod, and its server among those of
// its pod. A claim is found by the CDI device that the kubelet passes, else by what the device put into the
// environment, else by the container's name. The claim says which server it is, whatever the name: runtimes
// have been seen to pass another one for a container that is restored.
func identify(pod *api.PodSandbox, c *api.Container, records []driver.Record, servers []table.Server) subject {
	s := subject{pod: types.UID(pod.GetUid()), name: nameOf(c)}
	s.record, s.claimed = claimOf(c, s.name, records)
	if s.record != nil && s.record.PodClaim != "" {
		if server, ok := driver.ServerOf(*s.record, s.pod, servers); ok {
			s.server = &server
			s.name = strings.TrimPrefix(server.ID, rtdra.ServerID(s.pod, ""))
		}
		return s
	}
	id := rtdra.ServerID(s.pod, s.name)
	if i := slices.IndexFunc(servers, func(v table.Server) bool { return v.ID == id }); i >= 0 {
		s.server = &servers[i]
	}
	return s
}

func nameOf(c *api.Container) string {
	if name := c.GetLabels()[labelContainer]; name != "" {
		return name
	}
	return c.GetName()
}

// claimOf also tells whether the container uses a claim of ours at all.
func claimOf(c *api.Container, name string, records []driver.Record) (*driver.Record, bool) {
	for _, device := range c.GetCDIDevices() {
		if uid, ok := driver.ClaimOfDevice(device.GetName()); ok {
			return find(records, func(r driver.Record) bool { return r.UID == uid }), true
		}
	}
	if claim := variable(c.GetEnv(), driver.EnvClaim); claim != "" {
		if r := find(records, func(r driver.Record) bool { return r.Namespace+"/"+r.Name == claim }); r != nil {
			return r, true
		}
	}
	r := find(records, func(r driver.Record) bool { return r.PodClaim == rtdra.ClaimName(name) })
	return r, r != nil
}

func find(records []driver.Record, is func(driver.Record) bool) *driver.Record {
	if i := slices.IndexFunc(records, is); i >= 0 {
		return &records[i]
	}
	return nil
}

func variable(env []string, name string) string {
	for _, e := range env {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value
		}
	}
	return ""
}
