package actuator

import (
	"slices"
	"strings"
	"testing"
)

// writes made since a mark, relative to the machine's cgroup directory, with names of pods and containers
// shortened.
func (s *simTree) writesSince(mark int, c containers) []string {
	pod := func(group string) string { return group[:strings.LastIndex(group, "/")] }
	short := strings.NewReplacer(
		s.tree.Dir()+"/sys/fs/cgroup", "",
		c.first, "/FIRST", c.second, "/SECOND", c.guaranteed, "/GUARANTEED", c.bestEffort, "/BESTEFFORT",
		pod(c.first), "/BURSTABLEPOD", pod(c.guaranteed), "/GUARANTEEDPOD", pod(c.bestEffort), "/BESTEFFORTPOD",
	)
	var out []string
	for _, line := range s.log[mark:] {
		out = append(out, short.Replace(line))
	}
	return out
}

// TestWrites holds what each backend writes, in order, for a container that comes, is raised, moves and
// goes: levels before what is below them when growing, after it when shrinking.
func TestWrites(t *testing.T) {
	server := func(c containers) Server {
		return Server{Cgroup: c.first, Core: 1, PeriodUs: 10_000, DeadlineUs: 10_000, BudgetUs: 1_000, HighUs: 2_000, Priority: 20}
	}
	for name, want := range map[string][]string{
		"rtgroup": {
			"cpu,cpuacct/kubepods/cpu.rt_period_us=60000000", "cpu,cpuacct/kubepods/cpu.rt_runtime_us=12012000",
			"cpu,cpuacct/kubepods/burstable/cpu.rt_period_us=60000000", "cpu,cpuacct/kubepods/burstable/cpu.rt_runtime_us=12012000",
			"cpu,cpuacct/BURSTABLEPOD/cpu.rt_period_us=60000000", "cpu,cpuacct/BURSTABLEPOD/cpu.rt_runtime_us=12012000",
			"cpu,cpuacct/FIRST/cpu.rt_period_us=10000", "cpu,cpuacct/FIRST/cpu.rt_runtime_us=1000",
			"cpuset/FIRST/cpuset.cpus=1",
			"raise:", "cpu,cpuacct/FIRST/cpu.rt_runtime_us=2000",
			"move:", "cpuset/FIRST/cpuset.cpus=1-2", "cpuset/FIRST/cpuset.cpus=2",
			"close:", "cpuset/FIRST/cpuset.cpus=0-3",
			"cpu,cpuacct/FIRST/cpu.rt_runtime_us=0", "cpu,cpuacct/FIRST/cpu.rt_period_us=1000000",
			"cpu,cpuacct/BURSTABLEPOD/cpu.rt_runtime_us=0", "cpu,cpuacct/BURSTABLEPOD/cpu.rt_period_us=1000000",
			"cpu,cpuacct/kubepods/burstable/cpu.rt_runtime_us=0", "cpu,cpuacct/kubepods/burstable/cpu.rt_period_us=1000000",
			"cpu,cpuacct/kubepods/cpu.rt_runtime_us=0", "cpu,cpuacct/kubepods/cpu.rt_period_us=1000000",
		},
		"hcbs-rt.max": {
			"FIRST/cpu.rt.max=1000 10000", "FIRST/cpuset.cpus=1",
			"raise:", "FIRST/cpu.rt.max=2000 10000",
			"move:", "FIRST/cpuset.cpus=1-2", "FIRST/cpuset.cpus=2",
			"close:", "FIRST/cpuset.cpus=", "FIRST/cpu.rt.max=max 0",
		},
		"hcbs-multi": {
			"kubepods/cpu.rt_multi_runtime_us=1 200000", "kubepods/burstable/cpu.rt_multi_runtime_us=1 200000",
			"BURSTABLEPOD/cpu.rt_multi_runtime_us=1 200000",
			"FIRST/cpu.rt_period_us=10000", "FIRST/cpu.rt_multi_runtime_us=1 1000", "FIRST/cpuset.cpus=1",
			"raise:", "FIRST/cpu.rt_multi_runtime_us=1 2000",
			"move:", "kubepods/cpu.rt_multi_runtime_us=2 200000", "kubepods/burstable/cpu.rt_multi_runtime_us=2 200000",
			"BURSTABLEPOD/cpu.rt_multi_runtime_us=2 200000", "FIRST/cpu.rt_multi_runtime_us=2 2000",
			"FIRST/cpuset.cpus=1-2", "FIRST/cpuset.cpus=2", "FIRST/cpu.rt_multi_runtime_us=1 0",
			"BURSTABLEPOD/cpu.rt_multi_runtime_us=1 0", "kubepods/burstable/cpu.rt_multi_runtime_us=1 0", "kubepods/cpu.rt_multi_runtime_us=1 0",
			"close:", "FIRST/cpuset.cpus=", "FIRST/cpu.rt_multi_runtime_us=2 0", "FIRST/cpu.rt_period_us=1000000",
			"BURSTABLEPOD/cpu.rt_multi_runtime_us=2 0", "kubepods/burstable/cpu.rt_multi_runtime_us=2 0", "kubepods/cpu.rt_multi_runtime_us=2 0",
		},
		"cfs-v1": {
			"cpu/FIRST/cpu.cfs_period_us=10000", "cpu/FIRST/cpu.cfs_quota_us=1000", "cpu/FIRST/cpu.shares=10240", "cpuset/FIRST/cpuset.cpus=1",
			"raise:", "cpu/FIRST/cpu.cfs_quota_us=2000",
			"move:", "cpuset/FIRST/cpuset.cpus=1-2", "cpuset/FIRST/cpuset.cpus=2",
			"close:", "cpuset/FIRST/cpuset.cpus=0-3", "cpu/FIRST/cpu.shares=1024", "cpu/FIRST/cpu.cfs_quota_us=-1",
			"cpu/FIRST/cpu.cfs_period_us=100000",
		},
		"cfs-v2": {
			"FIRST/cpu.max=1000 10000", "FIRST/cpu.weight=1000", "FIRST/cpuset.cpus=1",
			"raise:", "FIRST/cpu.max=2000 10000",
			"move:", "FIRST/cpuset.cpus=1-2", "FIRST/cpuset.cpus=2",
			"close:", "FIRST/cpuset.cpus=", "FIRST/cpu.weight=100", "FIRST/cpu.max=max 100000",
		},
		"deadline-v1": {
			"cpuset/FIRST/cpuset.cpus=1", "cpuset/FIRST/cpuset.cpus=0-3",
			"setattr 101 policy 6 priority 0", "setattr 102 policy 6 priority 0", "cpuset/FIRST/cpuset.cpus=1",
			"raise:",
			"move:", "cpuset/FIRST/cpuset.cpus=1-2", "cpuset/FIRST/cpuset.cpus=2",
			"close:", "setattr 102 policy 0 priority 0", "setattr 101 policy 0 priority 0", "cpuset/FIRST/cpuset.cpus=0-3",
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := slices.IndexFunc(layouts, func(l layout) bool {
				return l.name == name
			})
			s := newSim(t, layouts[i].mount)
			c := populate(s)
			b := s.probe(layouts[i].backend)
			mark := len(s.log)
			g, err := b.Open(server(c))
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range []struct {
				name string
				do   func() error
			}{
				{"raise:", func() error { return g.Set(2_000) }},
				{"move:", func() error { return g.Move(2) }},
				{"close:", func() error { return g.Close(true) }},
			} {
				s.log = append(s.log, step.name)
				if err := step.do(); err != nil {
					t.Fatalf("%s %v", step.name, err)
				}
			}
			got := s.writesSince(mark, c)
			for i := range got {
				got[i] = strings.TrimPrefix(got[i], "/")
			}
			if !slices.Equal(got, want) {
				t.Errorf("wrote\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
			}
		})
	}
}
