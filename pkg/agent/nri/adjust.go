package nri

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/containerd/nri/pkg/api"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/host"
)

// ErrCoreUnknown refuses a container that has a claim of ours which is not prepared on this node: made
// anywhere else than on its core, it would take what was promised to others.
var ErrCoreUnknown = errors.New("the core of its claim is not known on this node")

// coresOf is where the container is to be made: on the core of its server, else on that of its claim.
func coresOf(s subject) ([]int, error) {
	switch {
	case s.server != nil:
		return []int{s.server.Core}, nil
	case s.record != nil:
		return s.record.Cores(), nil
	default:
		return nil, fmt.Errorf("container %s of pod %s: %w; the kubelet tries again", s.name, s.pod, ErrCoreUnknown)
	}
}

// adjustment puts the container on its cores, with its first budget where the fast path made room for one.
func adjustment(cores []int, first table.First) *api.ContainerAdjustment {
	a := &api.ContainerAdjustment{}
	a.SetLinuxCPUSetCPUs(host.FormatCPUList(cores))
	if first.RuntimeUs > 0 && first.PeriodUs > 0 {
		a.SetLinuxCPURealtimePeriod(uint64(first.PeriodUs))
		a.SetLinuxCPURealtimeRuntime(first.RuntimeUs)
	}
	for _, file := range slices.Sorted(maps.Keys(first.Unified)) {
		a.AddLinuxUnified(file, first.Unified[file])
	}
	return a
}

// criuConfig is the annotation by which runc learns of a container's own options for CRIU. They overrule what runc sets itself, as
// the file that CRIU_CONFIG_FILE names cannot.
const criuConfig = "org.criu.config"

// withCRIU adds the options for CRIU to an adjustment, which may be nil; not where somebody has given the container its own.
func (p *plugin) withCRIU(a *api.ContainerAdjustment, c *api.Container) *api.ContainerAdjustment {
	if _, given := c.GetAnnotations()[criuConfig]; p.CRIU == "" || given {
		return a
	}
	if a == nil {
		a = &api.ContainerAdjustment{}
	}
	a.AddAnnotation(criuConfig, p.CRIU)
	return a
}

// kept is the answer to an update of the container's resources that would take it off its core; nil when
// it would not.
func kept(containerID string, s subject, asked *api.LinuxResources) *api.ContainerUpdate {
	cpus := asked.GetCpu().GetCpus()
	if cpus == "" || s.server == nil || cpus == strconv.Itoa(s.server.Core) {
		return nil
	}
	u := &api.ContainerUpdate{}
	u.SetContainerId(containerID)
	u.SetLinuxCPUSetCPUs(strconv.Itoa(s.server.Core))
	return u
}
