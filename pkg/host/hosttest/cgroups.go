package hosttest

import (
	"path"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// layout is how a machine's control groups are mounted.
type layout struct {
	version  host.Version
	v1       []string // mounted each alone, or together as "cpu,cpuacct"
	v2       []string // controllers of the v2 hierarchy
	rt       RTFiles
	base     string // of the v2 hierarchy
	cpus     string
	rtGroups bool
}

// RTFiles are the files of real-time budgets that a v2 hierarchy has.
type RTFiles string

// No such files, those of the patches of 2026, or those of the older patched kernels.
const (
	NoRTFiles  RTFiles = ""
	RTMax      RTFiles = "cpu.rt.max"
	RTMultiple RTFiles = "cpu.rt_multi_runtime_us"
)

// CgroupsV1 mounts each controller ("cpu,cpuacct" together) in a hierarchy of its own. With rtGroups the
// groups have real-time bandwidth.
func (tr *Tree) CgroupsV1(rtGroups bool, controllers ...string) {
	tr.t.Helper()
	tr.cgroups = layout{version: host.V1, v1: controllers, rtGroups: rtGroups, cpus: tr.Read("sys/devices/system/cpu/online")}
	tr.Mount("/", "/sys", "sysfs", "")
	tr.Mount("/", "/sys/fs/cgroup", "tmpfs", ",mode=755")
	tr.Mount("/", "/sys/fs/cgroup/systemd", "cgroup", ",xattr,name=systemd")
	for _, c := range controllers {
		tr.Mount("/", "/sys/fs/cgroup/"+c, "cgroup", ","+c)
	}
	tr.Group("/")
}

// CgroupsHybrid is CgroupsV1 with a v2 hierarchy beside it, which has no controllers.
func (tr *Tree) CgroupsHybrid(rtGroups bool, controllers ...string) {
	tr.t.Helper()
	tr.CgroupsV1(rtGroups, controllers...)
	tr.cgroups.version, tr.cgroups.base = host.Hybrid, "/sys/fs/cgroup/unified"
	tr.Mount("/", tr.cgroups.base, "cgroup2", ",nsdelegate")
	tr.Group("/")
}

// CgroupsV2 mounts one hierarchy with those controllers.
func (tr *Tree) CgroupsV2(rt RTFiles, controllers ...string) {
	tr.t.Helper()
	tr.cgroups = layout{version: host.V2, v2: controllers, rt: rt, base: "/sys/fs/cgroup", cpus: tr.Read("sys/devices/system/cpu/online")}
	tr.Mount("/", "/sys", "sysfs", "")
	tr.Mount("/", "/sys/fs/cgroup", "cgroup2", ",nsdelegate,memory_recursiveprot")
	tr.Group("/")
}

// Group makes a group, and those above it, in every hierarchy, with the files and values of a new group.
func (tr *Tree) Group(group string) {
	tr.t.Helper()
	if group != "/" {
		tr.Group(path.Dir(group))
	}
	for _, controllers := range tr.cgroups.v1 {
		dir := path.Join("/sys/fs/cgroup", controllers, group)
		for _, controller := range strings.Split(controllers, ",") {
			tr.fill(dir, tr.v1Files(controller, group == "/"))
		}
		tr.fill(dir, map[string]string{"tasks": "", "cgroup.procs": ""})
	}
	if tr.cgroups.base != "" {
		tr.fill(path.Join(tr.cgroups.base, group), tr.v2Files(group == "/"))
	}
}

// fill writes the files that are not there yet.
func (tr *Tree) fill(dir string, files map[string]string) {
	tr.t.Helper()
	for name, text := range files {
		file := path.Join(dir, name)
		if !tr.exists(file) {
			tr.Write(file, text)
		}
	}
}

func (tr *Tree) v1Files(controller string, root bool) map[string]string {
	switch controller {
	case "cpu":
		files := map[string]string{"cpu.shares": "1024", "cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000",
			"cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0"}
		if tr.cgroups.rtGroups {
			files["cpu.rt_period_us"], files["cpu.rt_runtime_us"] = "1000000", "0"
			if root {
				files["cpu.rt_runtime_us"] = "950000"
			}
		}
		return files
	case "cpuacct":
		return map[string]string{"cpuacct.usage": "0", "cpuacct.usage_percpu": "0"}
	case "cpuset":
		return map[string]string{"cpuset.cpus": tr.cgroups.cpus, "cpuset.mems": "0", "cpuset.effective_cpus": tr.cgroups.cpus,
			"cpuset.cpu_exclusive": "0", "cpuset.sched_load_balance": "1"}
	}
	return nil
}

func (tr *Tree) v2Files(root bool) map[string]string {
	controllers := strings.Join(tr.cgroups.v2, " ")
	files := map[string]string{"cgroup.controllers": controllers, "cgroup.subtree_control": controllers,
		"cgroup.procs": "", "cgroup.threads": "", "cpu.stat": "usage_usec 0\nuser_usec 0\nsystem_usec 0"}
	for _, c := range tr.cgroups.v2 {
		if c == "cpuset" {
			files["cpuset.cpus.effective"] = tr.cgroups.cpus
		}
	}
	if root {
		if tr.cgroups.rt == RTMax {
			files[string(RTMax)] = "950000 1000000"
		}
		return files
	}
	files["cgroup.type"] = "domain"
	for _, c := range tr.cgroups.v2 {
		switch c {
		case "cpu":
			files["cpu.max"], files["cpu.weight"] = "max 100000", "100"
			files["cpu.pressure"] = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0"
			tr.addRTFiles(files)
		case "cpuset":
			files["cpuset.cpus"], files["cpuset.mems"], files["cpuset.cpus.partition"] = "", "", "member"
		}
	}
	return files
}

func (tr *Tree) addRTFiles(files map[string]string) {
	switch tr.cgroups.rt {
	case RTMax:
		files["cpu.rt.max"] = "max 0"
	case RTMultiple:
		files["cpu.rt_runtime_us"], files["cpu.rt_period_us"] = "0", "1000000"
		cpus, err := host.ParseCPUList(tr.cgroups.cpus)
		if err != nil {
			tr.t.Fatalf("making fake machine: %v", err)
		}
		files["cpu.rt_multi_runtime_us"] = strings.TrimSpace(strings.Repeat("0 ", len(cpus)))
	}
}
