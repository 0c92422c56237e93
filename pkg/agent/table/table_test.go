package table_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

func server() table.Server {
	return table.Server{
		ID: "a", Cgroup: "/kubepods/pod1/c1", Criticality: "High", PeriodUs: 10_000, DeadlineUs: 10_000, LowUs: 2_000, HighUs: 4_000,
		LevelsUs: []int64{3_000}, LeastUs: 2_000, Core: 1, Mode: table.Elastic, Overruns: 1, Periods: 1,
	}
}

func TestAWholeTableIsValid(t *testing.T) {
	other := server()
	other.ID, other.Cgroup = "b", "/kubepods/pod1/c2"
	whole := table.Table{
		Generation: 3, Servers: []table.Server{server(), other},
		Plans: []table.Plan{{Core: 1, ThresholdPpm: 900_000, Raise: []table.Raise{{ID: "gone", ToUs: 1}}}},
	}
	if err := whole.Validate(); err != nil {
		t.Errorf("a plan older than the containers is no fault: %v", err)
	}
	if got := whole.Plan(1).ThresholdPpm; got != 900_000 {
		t.Errorf("plan of core 1: %d", got)
	}
	if got := whole.Plan(7); got.ThresholdPpm != 0 || len(got.Raise) != 0 {
		t.Errorf("a core without a plan may raise nothing: %+v", got)
	}
}

func TestFaultsNameFieldValueAndBound(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*table.Server)
		want  []string
	}{
		"no id":                {func(s *table.Server) { s.ID = "" }, []string{"id is empty"}},
		"negative core":        {func(s *table.Server) { s.Core = -1 }, []string{"core -1", "0 to 1023"}},
		"relative cgroup":      {func(s *table.Server) { s.Cgroup = "kubepods" }, []string{`cgroup "kubepods"`, "absolute"}},
		"climbing cgroup":      {func(s *table.Server) { s.Cgroup = "/kubepods/../.." }, []string{`cgroup "/kubepods/../.."`}},
		"root cgroup":          {func(s *table.Server) { s.Cgroup = "/" }, []string{`cgroup "/"`}},
		"unknown mode":         {func(s *table.Server) { s.Mode = "elastic" }, []string{`mode "elastic"`, "Elastic or Reserved"}},
		"no overruns":          {func(s *table.Server) { s.Overruns = 0 }, []string{"overruns 0"}},
		"more of than periods": {func(s *table.Server) { s.Overruns = 3; s.Periods = 2 }, []string{"overruns 3 of periods 2"}},
		"too many periods":     {func(s *table.Server) { s.Periods = 65 }, []string{"<= 64"}},
		"negative dwell":       {func(s *table.Server) { s.DwellUs = -1 }, []string{"dwellUs -1"}},
		"endless dwell":        {func(s *table.Server) { s.DwellUs = 1 << 60 }, []string{"dwellUs 1152921504606846976; want 0 to 86400000000"}},
		"least below low":      {func(s *table.Server) { s.LeastUs = 1_999 }, []string{"leastUs 1999", "2000", "4000"}},
		"least above high":     {func(s *table.Server) { s.LeastUs = 4_001 }, []string{"leastUs 4001"}},
		"unknown criticality":  {func(s *table.Server) { s.Criticality = "Extreme" }, []string{"criticality", "Extreme"}},
		"low above high":       {func(s *table.Server) { s.LowUs = 5_000; s.LeastUs = 5_000 }, []string{"5000"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := server()
			c.spoil(&s)
			err := table.Table{Servers: []table.Server{s}}.Validate()
			if err == nil {
				t.Fatal("it was accepted")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("want %q in: %v", want, err)
				}
			}
		})
	}
}

func TestTwoOfAKindAreRefused(t *testing.T) {
	again := server()
	err := table.Table{Servers: []table.Server{server(), again}, Plans: []table.Plan{{Core: 1}, {Core: 1}}}.Validate()
	for _, want := range []string{`servers[1].id "a" is there twice`, `servers[1].cgroup`, "plans[1].core 1 is there twice"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in: %v", want, err)
		}
	}
}

func TestPlansHaveBounds(t *testing.T) {
	for _, p := range []table.Plan{{Core: -1}, {Core: 1024}, {ThresholdPpm: -1}, {ThresholdPpm: 1_000_001}, {MaxRaised: -1}} {
		if (table.Table{Plans: []table.Plan{p}}).Validate() == nil {
			t.Errorf("%+v was accepted", p)
		}
	}
}

func TestHistogramCountsAndMerges(t *testing.T) {
	var a, b table.Histogram
	a.Add(4_900)          // 4 us
	a.Add(5_000)          // 5 us: the bound belongs to its bucket
	a.Add(-3)             // early
	b.Add(20_000_000_000) // beyond every bucket
	a.Merge(b)
	if a.Count[0] != 3 || a.Count[len(table.BucketUs)] != 1 || a.MaxUs != 20_000_000 || a.SumUs != 20_000_009 {
		t.Errorf("%+v", a)
	}
}

func FuzzTable(f *testing.F) {
	whole, err := json.Marshal(table.Table{Servers: []table.Server{server()}, Plans: []table.Plan{{Core: 1, ThresholdPpm: 1}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"servers":[{"periodUs":-9223372036854775808}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var read table.Table
		if json.Unmarshal(data, &read) != nil || read.Validate() != nil {
			return
		}
		for _, s := range read.Servers {
			if r, err := s.RT(); err != nil || r.Low > r.High || s.LeastUs < s.LowUs || s.LeastUs > s.HighUs {
				t.Errorf("a valid table holds %+v: %v", s, err)
			}
		}
	})
}
