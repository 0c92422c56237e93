package cores_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/agent/cores"
	"github.com/mainspring-rt/mainspring/pkg/host"
)

// machine has n online cores; those listed are offline or isolated.
func machine(n int, offline, isolated []int) host.Topology {
	var t host.Topology
	for id := range n {
		t.Cores = append(t.Cores, host.Core{ID: id, Sibling: host.NoSibling, Online: !slices.Contains(offline, id), Isolated: slices.Contains(isolated, id)})
	}
	return t
}

func TestChoose(t *testing.T) {
	for name, tc := range map[string]struct {
		machine          host.Topology
		wanted, reserved string
		want             string
		err              string
	}{
		"the lowest is the host's":           {machine(4, nil, nil), "", "", "1-3", ""},
		"the lowest online one":              {machine(4, []int{0}, nil), "", "", "2-3", ""},
		"reserved instead of the lowest":     {machine(4, nil, nil), "", "2-3", "0-1", ""},
		"isolated for others":                {machine(4, nil, []int{2}), "", "", "1,3", ""},
		"isolated and asked for":             {machine(4, nil, []int{2}), "2-3", "", "2-3", ""},
		"offline":                            {machine(4, []int{3}, nil), "2-3", "", "2", ""},
		"one core":                           {machine(1, nil, nil), "", "", "", ""},
		"everything reserved":                {machine(2, nil, nil), "", "0-1", "", ""},
		"a reserved one that is not there":   {machine(2, nil, nil), "", "0,7", "1", ""},
		"all":                                {machine(2, nil, nil), "0-1", "", "", `--cores "0-1" and --reserved-cores "" leave no core to the host: want at least one of 0-1 out`},
		"all that is online":                 {machine(3, []int{2}, nil), "0-2", "", "", "leave no core to the host"},
		"one only, which is asked for":       {machine(1, nil, nil), "0", "", "", "leave no core to the host"},
		"not there":                          {machine(2, nil, nil), "1-2", "", "", "--cores names core 2, which the machine has not: it has 0-1"},
		"wanted and reserved":                {machine(3, nil, nil), "1-2", "2", "", "core 2 is in --cores and in --reserved-cores"},
		"not a list":                         {machine(2, nil, nil), "a", "", "", "--cores: "},
		"not a list either":                  {machine(2, nil, nil), "", "1-", "", "--reserved-cores: "},
		"a reserved one offline, others not": {machine(3, []int{1}, nil), "", "1", "", "leave no core"},
	} {
		got, err := cores.Choose(tc.machine, tc.wanted, tc.reserved)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: error %v, want %q", name, err, tc.err)
			}
			continue
		}
		if err != nil || host.FormatCPUList(got.Cores) != tc.want || len(got.Cores)+len(got.Out) != len(tc.machine.Cores) {
			t.Errorf("%s: %+v, %v, want %s", name, got, err, tc.want)
		}
	}
}

// Whatever is asked for: what is chosen is online and not reserved, and the host keeps a core.
func TestTheHostKeepsACore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "n")
		some := func(name string) []int { return rapid.SliceOfDistinct(rapid.IntRange(0, n-1), rapid.ID).Draw(t, name) }
		m := machine(n, some("offline"), some("isolated"))
		reserved := some("reserved")
		got, err := cores.Choose(m, host.FormatCPUList(some("wanted")), host.FormatCPUList(reserved))
		if err != nil {
			return
		}
		online := m.Online()
		for _, c := range got.Cores {
			if !slices.Contains(online, c) || slices.Contains(reserved, c) {
				t.Fatalf("core %d of %+v", c, got)
			}
		}
		if len(online) > 0 && len(got.Cores) >= len(online) {
			t.Fatalf("the host keeps none: %+v", got)
		}
	})
}
