package ebpf

import (
	"bytes"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

// kernelTypes is this kernel's type information, without some members of some structures.
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
	} {
		var s *btf.Struct
		if err := spec.TypeByName(name, &s); err != nil {
			t.Fatal(err)
		}
		s.Members = slices.DeleteFunc(slices.Clone(s.Members), func(m btf.Member) bool { return slices.Contains(without[name], m.Name) })
		types = append(types, s)
	}
	var controllers *btf.Enum
	if err := spec.TypeByName("cgroup_subsys_id", &controllers); err != nil {
		t.Fatal(err)
	}
	builder, err := btf.NewBuilder(append(types, controllers), nil)
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
