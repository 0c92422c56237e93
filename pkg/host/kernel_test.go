package host_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/host/hosttest"
)

func TestServersOfTheScheduler(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		tree      *hosttest.Tree
		fair, ext int64
		known     bool
	}{
		"not readable": {tree: hosttest.Lab(t), fair: host.DefaultFairServer},
		"fair only":    {tree: hosttest.Distribution(t), fair: 50_000, known: true},
		"both":         {tree: hosttest.Edge(t), fair: 50_000, ext: 50_000, known: true},
	} {
		fair, known := want.tree.Host().FairServer(2)
		ext, extKnown := want.tree.Host().ExtServer(2)
		if fair != want.fair || ext != want.ext || known != want.known || extKnown != want.known {
			t.Errorf("%s: got %d %v, %d %v", name, fair, known, ext, extKnown)
		}
	}
	tree := hosttest.Distribution(t)
	tree.Write("sys/kernel/debug/sched/fair_server/cpu2/runtime", "1")
	tree.Write("sys/kernel/debug/sched/fair_server/cpu2/period", "3000000")
	if ppm, _ := tree.Host().FairServer(2); ppm != 1 {
		t.Errorf("rounds up: got %d", ppm)
	}
	tree.Write("sys/kernel/debug/sched/fair_server/cpu2/period", "0")
	if ppm, known := tree.Host().FairServer(2); known || ppm != host.DefaultFairServer {
		t.Errorf("nonsense: got %d, %v", ppm, known)
	}
}

func TestRTLimits(t *testing.T) {
	t.Parallel()
	tree := hosttest.Lab(t)
	for runtime, ok := range map[string]bool{"-1": true, "0": true, "1000000": true, "1000001": false, "-2": false, "x": false} {
		tree.Write("proc/sys/kernel/sched_rt_runtime_us", runtime)
		if _, _, err := tree.Host().RTLimits(); (err == nil) != ok {
			t.Errorf("%s: got %v", runtime, err)
		}
	}
}

func TestRTGroupSchedAtBoot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config, cmdline string
		want            bool
	}{
		{"CONFIG_RT_GROUP_SCHED=y", "quiet", true},
		{"CONFIG_RT_GROUP_SCHED=y", "rt_group_sched=0", true}, // a kernel that does not know it
		{"CONFIG_RT_GROUP_SCHED=y\n# CONFIG_RT_GROUP_SCHED_DEFAULT_DISABLED is not set", "rt_group_sched=0", false},
		{"CONFIG_RT_GROUP_SCHED=y\nCONFIG_RT_GROUP_SCHED_DEFAULT_DISABLED=y", "quiet", false},
		{"CONFIG_RT_GROUP_SCHED=y\nCONFIG_RT_GROUP_SCHED_DEFAULT_DISABLED=y", "rt_group_sched=0 rt_group_sched=1", true},
		{"# CONFIG_RT_GROUP_SCHED is not set", "rt_group_sched=1", false},
	} {
		tree := hosttest.Blocked(t)
		tree.Config(c.config)
		tree.Write("proc/cmdline", c.cmdline)
		if got, err := tree.Host().RTGroupSched(); err != nil || got != c.want {
			t.Errorf("%q %q: got %v, %v", c.config, c.cmdline, got, err)
		}
	}
	tree := hosttest.Blocked(t)
	tree.Remove("proc/config.gz")
	if _, err := tree.Host().RTGroupSched(); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
}

func TestKernel(t *testing.T) {
	t.Parallel()
	h := hosttest.Edge(t).Host()
	features, err := h.SchedFeatures()
	if err != nil || !features["HRTICK"] || !features["PLACE_LAG"] {
		t.Errorf("got %v, %v", features, err)
	}
	if features, err = hosttest.Distribution(t).Host().SchedFeatures(); err != nil || features["HRTICK_DL"] {
		t.Errorf("got %v, %v", features, err)
	}
	names, err := h.BTFNames("btf_trace_sched_dl_throttle_tp", "no_such_name")
	if err != nil || !names["btf_trace_sched_dl_throttle_tp"] || names["no_such_name"] || !h.HasBTF() {
		t.Errorf("got %v, %v", names, err)
	}
	config, file, err := hosttest.Distribution(t).Host().KernelConfig()
	if err != nil || config["CONFIG_HZ"] != "250" || !strings.HasSuffix(file, "/boot/config-6.12.48-amd64") {
		t.Errorf("got %v of %s, %v", config, file, err)
	}
	if set, err := h.Capabilities(); err != nil || !set.Has(host.CapSysResource) {
		t.Errorf("got %v, %v", set, err)
	}
	if _, err := hosttest.New(t).Host().BTFNames("x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
