package standalone_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/standalone"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

const one = `
servers:
- name: control
  criticality: high
  period: 10ms
  runtime_low: 1500
  runtime_hi: 4ms
  levels: [2ms, 3000]
  core: 1
  command: [./control, --fast]
`

func parse(t *testing.T, text string) standalone.File {
	t.Helper()
	f, err := standalone.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestParse(t *testing.T) {
	f := parse(t, "backend: fifo\nlead: 300us\ncores: [0, 2, 3]\ncharge_granularity: 50\n"+one)
	s := f.Servers[0]
	if f.Backend != "fifo" || *f.Lead != 300 || f.Cores != "0,2-3" || *f.ChargeGranularity != 50 {
		t.Errorf("the head is %+v", f)
	}
	if s.Period != 10_000 || s.RuntimeLow != 1500 || s.RuntimeHi != 4000 || len(s.Levels) != 2 || s.Levels[1] != 3000 || *s.Core != 1 {
		t.Errorf("the server is %+v", s)
	}
	if s.Criticality != "High" || s.Mode != table.Elastic || s.Deadline != s.Period || s.Overruns != 1 || s.Periods != 1 || s.Dwell != 1_000_000 {
		t.Errorf("what was left out is %+v", s)
	}
}

func TestParseRefusals(t *testing.T) {
	server := func(from, to string) string {
		out := strings.Replace(one, from, to, 1)
		if out == one {
			t.Fatalf("%q is not in the example", from)
		}
		return out
	}
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "the file is empty; want servers"},
		{"no servers", "backend: fifo", "servers has no entry"},
		{"two documents", one + "---\n" + one, "several documents"},
		{"an unknown field", "servres: []", `field "servres" is not known; want one of backend, lead`},
		{"an unknown field of a server", server("core:", "cpu:"), `line 9: field "cpu" is not known; want one of name, criticality`},
		{"a backend", "backend: magic\n" + one, `backend "magic"; want one of hcbs`},
		{"an admission test", "admission: T2\n" + one, `admission "T2"; want T1`},
		{"a lead", "lead: 2s\n" + one, "lead 2000000us; want 0 to 1s"},
		{"cores", "cores: 1-\n" + one, `cores "1-"; want numbers and ranges`},
		{"a mapping for cores", "cores: {1: 2}\n" + one, "want numbers and ranges"},
		{"a time without unit", server("10ms", "ten"), `"ten"; want microseconds as a number`},
		{"a fraction", server("10ms", "10ns"), `"10ns"; want whole microseconds`},
		{"a text for a number", server("core: 1", "core: one"), `"one"; want a whole number`},
		{"a list for a text", server("name: control", "name: [a]"), "a list"},
		{"a name", server("control", "../control"), `name "../control"; want 1 to 63 letters`},
		{"a criticality", server("high", "utmost"), `"utmost" is not one of High, Middle, Low`},
		{"a period", server("10ms", "1us"), "period: 1us is outside 100us to 10000000us"},
		{"low above high", server("1500", "5000"), "runtime_hi: 4000us is below runtime_low, 5000us"},
		{"a level", server("[2ms, 3000]", "[5ms]"), "levels[0]: 5000us is not between"},
		{"a deadline", one + "  deadline: 20ms\n", "deadline: 20000us is outside runtime_hi"},
		{"a mode", one + "  mode: Fast\n", `mode "Fast"; want Elastic or Reserved`},
		{"m of n", one + "  overruns: 3\n", "overruns 3 of periods 0"},
		{"a dwell", one + "  dwell: -1s\n", "dwellUs -1000000"},
		{"a priority", one + "  priority: 99\n", "priority 99; want 1 to 85"},
		{"a policy", one + "  policy: rr\n", `policy "rr"; want fifo or own`},
		{"nothing to run", server("command: [./control, --fast]", ""), "0 of command, pid and cgroup are given; want exactly one"},
		{"two things to run", one + "  pid: 7\n", "2 of command, pid and cgroup"},
		{"a cgroup", server("command: [./control, --fast]", "cgroup: a/b"), `cgroup "a/b"; want a clean absolute path`},
		{"twice the same", one + strings.TrimPrefix(one, "\nservers:\n"), `name "control" is also that of servers[0]`},
	} {
		_, err := standalone.Parse([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v; want one with %q", c.name, err, c.want)
		}
	}
}

func TestExamplesParse(t *testing.T) {
	files, err := filepath.Glob("../../../examples/standalone/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d examples, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := standalone.Parse(text); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// FuzzParse: no input crashes, and what is taken is a table that the fast path takes, once it is placed.
func FuzzParse(f *testing.F) {
	f.Add([]byte(one))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("servers: [{name: a, levels: [1,2], period: 1e3}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := standalone.Parse(text)
		if err != nil {
			return
		}
		node := table.Report{Backend: "hcbs"}
		for _, s := range file.Servers {
			if s.Core != nil {
				node.Cores = append(node.Cores, table.CoreReport{ID: *s.Core, CapacityPpm: 900_000})
			}
		}
		admitted, err := standalone.Admit(file, node, standalone.Group)
		if err == nil && admitted.Validate() != nil {
			t.Fatalf("admitted, but %v", admitted.Validate())
		}
	})
}
