package ebpf

import (
	"bytes"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

// kernelTypes is this kernel's type information, without some members of some structures, and some values of some
// enumerations.
func kernelTypes(t *testing.T, without map[string][]string) *btf.Spec {
	t.Helper()
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	var types []btf.Type
	for _, name := range []string{
		"task_struct", "sched_rt_entity", "rt_rq", "task_group", "rt_bandwidth", "css_set", "cgroup", "kernfs_node", "cgroup_subsys_state",
		"rq", "cfs_rq", "sched_entity", "sched_dl_entity", "sched_info", "hrtimer", "timerqueue_node",
		"nsproxy", "time_namespace", "timens_offsets", "timespec64",
	} {
		var s *btf.Struct
		if err := spec.TypeByName(name, &s); err != nil {
			t.Fatal(err)
		}
		s.Members = slices.DeleteFunc(slices.Clone(s.Members), func(m btf.Member) bool { return slices.Contains(without[name], m.Name) })
		types = append(types, s)
	}
	for _, name := range []string{"cgroup_subsys_id", "bpf_func_id"} {
		var e *btf.Enum
		if err := spec.TypeByName(name, &e); err != nil {
			t.Fatal(err)
		}
		e.Values = slices.DeleteFunc(slices.Clone(e.Values), func(v btf.EnumValue) bool { return slices.Contains(without[name], v.Name) })
		types = append(types, e)
	}
	builder, err := btf.NewBuilder(types, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := builder.Marshal(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	out, err := btf.LoadSpecFromReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The programs load on kernels that keep no accounts of RT groups: those built without, and those with hierarchical constant
// bandwidth servers, whose patches keep sched_rt_entity.rt_rq and drop the rest.
func TestProgramsLoadOnKernelsWithoutAccountsOfGroups(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.BTF)
	gone := map[string][]string{
		"sched_rt_entity": {"parent", "my_q", "back"}, "rt_rq": {"rt_throttled", "rt_time", "rt_runtime"}, "task_group": {"rt_bandwidth"},
	}
	without := map[string][]string{"sched_rt_entity": {"parent", "my_q", "back", "rt_rq"}, "rt_rq": gone["rt_rq"], "task_group": gone["task_group"]}
	for name, types := range map[string]*btf.Spec{
		"as this one": kernelTypes(t, nil), "with HCBS": kernelTypes(t, gone), "without RT groups": kernelTypes(t, without),
	} {
		t.Run(name, func(t *testing.T) {
			spec, err := loadBudget()
			if err != nil {
				t.Fatal(err)
			}
			spec.Maps[budgetMapRings].InnerMap.MaxEntries = 64 << 10
			var objects budgetObjects
			if err := spec.LoadAndAssign(&objects, &ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{KernelTypes: types}}); err != nil {
				t.Fatalf("loading the programs: %v", err)
			}
			if err := objects.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Kernels before 6.1 cannot tell programs the atomic time: what asks for it is dropped, or they would be refused.
func TestJobProgramsLoadWithoutAtomicTime(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.BTF)
	length := func(types *btf.Spec) int {
		spec, err := loadJobs()
		if err != nil {
			t.Fatal(err)
		}
		var objects jobsObjects
		if err := spec.LoadAndAssign(&objects, &ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{KernelTypes: types}}); err != nil {
			t.Fatalf("loading the programs: %v", err)
		}
		defer objects.Close()
		info, err := objects.JobsSleep.Info()
		if err != nil {
			t.Fatal(err)
		}
		instructions, err := info.Instructions()
		if err != nil {
			t.Fatal(err)
		}
		return len(instructions)
	}
	with, without := length(kernelTypes(t, nil)), length(kernelTypes(t, map[string][]string{"bpf_func_id": {"BPF_FUNC_ktime_get_tai_ns"}}))
	if without >= with {
		t.Errorf("%d instructions without the helper, %d with it; want fewer", without, with)
	}
}
