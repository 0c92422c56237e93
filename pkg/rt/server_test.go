package rt_test

import (
	"math"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

func TestParseCriticality(t *testing.T) {
	for in, want := range map[string]rt.Criticality{
		"": rt.Low, "Low": rt.Low, "LOW": rt.Low, "middle": rt.Middle, "MIDDLE": rt.Middle, "High": rt.High, "hIGH": rt.High,
	} {
		if got, err := rt.ParseCriticality(in); err != nil || got != want {
			t.Errorf("ParseCriticality(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	if _, err := rt.ParseCriticality("urgent"); err == nil || !strings.Contains(err.Error(), `"urgent" is not one of High, Middle, Low`) {
		t.Errorf("urgent: %v", err)
	}
}

func TestValidateNamesFieldValueAndBound(t *testing.T) {
	good := rt.Server{Criticality: rt.High, Period: 20_000, Low: 4_000, High: 8_000}
	for name, c := range map[string]struct {
		change func(*rt.Server)
		want   string
	}{
		"good":                     {func(*rt.Server) {}, ""},
		"equal budgets":            {func(s *rt.Server) { s.High = s.Low }, ""},
		"deadline":                 {func(s *rt.Server) { s.Deadline = 8_000 }, ""},
		"levels":                   {func(s *rt.Server) { s.Levels = []int64{5_000, 6_000} }, ""},
		"high at the bound":        {func(s *rt.Server) { s.High = 19_000 }, ""},
		"period too short":         {func(s *rt.Server) { s.Period = 99 }, "period: 99us is outside 100us to 10000000us"},
		"period too long":          {func(s *rt.Server) { s.Period = 10_000_001 }, "period: 10000001us is outside"},
		"no budget":                {func(s *rt.Server) { s.Low = 0 }, "runtime_low: 0us is not above 0"},
		"high below low":           {func(s *rt.Server) { s.High = 3_999 }, "runtime_hi: 3999us is below runtime_low, 4000us"},
		"high above its bound":     {func(s *rt.Server) { s.High = 19_001 }, "runtime_hi: 19001us is above 19000us, 95 % of the period"},
		"deadline below high":      {func(s *rt.Server) { s.Deadline = 7_999 }, "deadline: 7999us is outside runtime_hi, 8000us, to period, 20000us"},
		"deadline beyond period":   {func(s *rt.Server) { s.Deadline = 20_001 }, "deadline: 20001us"},
		"level too low":            {func(s *rt.Server) { s.Levels = []int64{4_000} }, "levels[0]: 4000us is not between 4000us and runtime_hi, 8000us"},
		"levels descend":           {func(s *rt.Server) { s.Levels = []int64{6_000, 5_000} }, "levels[1]: 5000us is not between 6000us"},
		"no core of that number":   {func(s *rt.Server) { s.Preferred = []int{2, -1} }, "core: -1 is not a core number"},
		"no criticality like that": {func(s *rt.Server) { s.Criticality = 3 }, "criticality: 3 is not one of"},
	} {
		t.Run(name, func(t *testing.T) {
			s := good
			c.change(&s)
			err := s.Validate()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestCharge(t *testing.T) {
	high := rt.Server{Criticality: rt.High, Period: 20_000, Low: 4_000, High: 8_000}
	for name, c := range map[string]struct {
		change      func(*rt.Server)
		granularity int64
		charge      rt.PPM
		step        rt.PPM
	}{
		"the high budget, if it may escalate":      {func(*rt.Server) {}, 0, 400_000, 200_000},
		"with granularity":                         {func(*rt.Server) {}, 100, 405_000, 200_000},
		"rounded up":                               {func(s *rt.Server) { s.Period = 30_000 }, 0, 266_667, 133_334},
		"the low budget of criticality Low":        {func(s *rt.Server) { s.Criticality = rt.Low }, 0, 200_000, 0},
		"the low budget if budgets are equal":      {func(s *rt.Server) { s.High = s.Low }, 0, 200_000, 0},
		"the low budget of Limited":                {func(s *rt.Server) { s.Limited = true }, 0, 200_000, 200_000},
		"by the deadline if it is shorter":         {func(s *rt.Server) { s.Deadline = 10_000 }, 0, 800_000, 400_000},
		"saturated for budgets beyond the range":   {func(s *rt.Server) { s.High = math.MaxInt64 }, 0, rt.Unlimited, rt.Unlimited},
		"saturated for periods that mean nothing":  {func(s *rt.Server) { s.Period = 0 }, 0, rt.Unlimited, rt.Unlimited},
		"saturated for granularity that overflows": {func(*rt.Server) {}, math.MaxInt64, rt.Unlimited, 200_000},
	} {
		t.Run(name, func(t *testing.T) {
			s := high
			c.change(&s)
			if got, step := s.Charge(c.granularity), s.Step(); got != c.charge || step != c.step {
				t.Errorf("charge %d, step %d; want %d, %d", got, step, c.charge, c.step)
			}
		})
	}
}

func TestFloor(t *testing.T) {
	for name, c := range map[string]struct {
		server      rt.Server
		granularity int64
		want        int64
	}{
		"half":                         {rt.Server{Low: 1_001, High: 1_001}, 100, 501},
		"not below the granularity":    {rt.Server{Low: 150, High: 150}, 100, 100},
		"nor above the budget":         {rt.Server{Low: 50, High: 50}, 100, 50},
		"Middle is not squeezed":       {rt.Server{Criticality: rt.Middle, Low: 1_000, High: 1_000}, 0, 1_000},
		"High that can be raised, too": {rt.Server{Criticality: rt.High, Low: 1_000, High: 2_000}, 0, 1_000},
	} {
		if got := c.server.Floor(c.granularity); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// One cap, and what the kernel keeps is measured, never assumed.
func TestCapacity(t *testing.T) {
	for name, c := range map[string]struct {
		host rt.Host
		want rt.PPM
	}{
		"the kernel's default":         {rt.Host{RTRuntime: 950_000, RTPeriod: 1_000_000}, 900_000},
		"fair server":                  {rt.Host{RTRuntime: 950_000, RTPeriod: 1_000_000, FairServer: 50_000}, 900_000},
		"fair and ext server":          {rt.Host{RTRuntime: 950_000, RTPeriod: 1_000_000, FairServer: 50_000, ExtServer: 50_000}, 850_000},
		"no limit":                     {rt.Host{RTRuntime: -1, RTPeriod: 1_000_000, FairServer: 50_000}, 900_000},
		"all for servers":              {rt.Host{RTRuntime: 1_000_000, RTPeriod: 1_000_000, FairServer: 50_000, ExtServer: 50_000, Agent: 20_000}, 880_000},
		"rounded down":                 {rt.Host{RTRuntime: 1, RTPeriod: 3}, 333_333},
		"host deadline tasks take all": {rt.Host{RTRuntime: 950_000, RTPeriod: 1_000_000, HostDeadline: 950_000}, 0},
		"nonsense":                     {rt.Host{RTRuntime: 2, RTPeriod: 1}, 0},
		"no period":                    {rt.Host{RTRuntime: 950_000}, 0},
		"a negative reserve":           {rt.Host{RTRuntime: 950_000, RTPeriod: 1_000_000, Agent: -1}, 0},
	} {
		if got := rt.Capacity(c.host); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
