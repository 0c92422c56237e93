package rt_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// bytesOf reads numbers from fuzz input: mostly plausible ones, sometimes extremes. It yields zeros at
// the end.
type bytesOf struct{ data []byte }

func (b *bytesOf) number() uint16 {
	if len(b.data) < 2 {
		b.data = nil
		return 0
	}
	n := binary.LittleEndian.Uint16(b.data)
	b.data = b.data[2:]
	return n
}

func (b *bytesOf) time() int64 {
	switch n := b.number(); n {
	case math.MaxUint16:
		return math.MaxInt64
	case math.MaxUint16 - 1:
		return math.MinInt64
	case math.MaxUint16 - 2:
		return -1
	default:
		return int64(n)
	}
}

func (b *bytesOf) server(i int) rt.Server {
	flags := b.number()
	s := rt.Server{
		ID: fmt.Sprintf("s%d", i), Criticality: rt.Criticality(flags % 4), Limited: flags&4 != 0, Priority: int(flags >> 3 % 8),
		Period: b.time(), Low: b.time(), High: b.time(),
	}
	if flags&64 != 0 {
		s.Deadline = b.time()
	}
	if flags&128 != 0 {
		s.Levels = []int64{b.time()}
	}
	if flags&256 != 0 {
		s.Preferred = []int{int(b.number() % 5), int(b.number()%5) - 1}
	}
	if flags&512 != 0 {
		s.ID = "twin"
	}
	return s
}

func (b *bytesOf) core(id int) rt.Core {
	flags := b.number()
	return rt.Core{
		ID: id, Policy: rt.Policy(flags % 4), Capacity: rt.PPM(b.time()) * rt.PPM(flags>>2%32),
		EscalationReserve: rt.PPM(b.time()), Granularity: b.time(),
	}
}

func (b *bytesOf) servers(most int) []rt.Server {
	var out []rt.Server
	for i := 0; len(b.data) > 0 && i < most; i++ {
		out = append(out, b.server(i))
	}
	return out
}

// words makes fuzz input of numbers.
func words(numbers ...uint16) []byte {
	var out []byte
	for _, n := range numbers {
		out = binary.LittleEndian.AppendUint16(out, n)
	}
	return out
}

// corpus: cores of 900,000 ppm (30 x 30,000) under each policy, with servers of sense and of none.
func corpus() [][]byte {
	out := [][]byte{nil}
	for policy := range uint16(4) {
		core := []uint16{30<<2 | policy, 30_000, 20_000, 100}
		for _, servers := range [][]uint16{
			{2, 10_000, 2_000, 4_000, 0, 20_000, 5_000, 5_000, 1, 1_000, 100, 200},
			{2 | 4, 10_000, 2_000, 2_100, 1 | 4, 10_000, 2_000, 2_200, 0, 10_000, 4_000, 4_000},
			{2 | 64, 10_000, 2_000, 4_000, 5_000, 2 | 128, 10_000, 2_000, 4_000, 3_000},
			{2 | 256, 10_000, 6_000, 9_000, 1, 2, 256, 10_000, 6_000, 9_000, 1, 0, 1 | 256, 10_000, 2_000, 2_000, 1, 1},
			{2, 0, 0, 0, 3, 10_000, 5, 2, 1, 65_535, 65_535, 65_535, 2, 65_534, 65_534, 65_534},
			{2 | 512, 10_000, 2_000, 4_000, 512, 10_000, 1_000, 1_000, 2, 100, 65_533, 65_535},
		} {
			out = append(out, words(append(slices.Clone(core), servers...)...), words(append(slices.Concat(core, core), servers...)...))
		}
	}
	return out
}

// Whatever comes in: no panic, nothing that is not valid is admitted, Admit agrees with Holds, fewer
// servers never pass worse, and the charges of what is admitted fit.
func FuzzAdmit(f *testing.F) {
	for _, data := range corpus() {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := bytesOf{data}
		core := in.core(0)
		servers := in.servers(8)
		if len(servers) == 0 {
			return
		}
		last := len(servers) - 1
		s, placed := servers[last], servers[:last]
		before := fmt.Sprint(servers)
		v := rt.Admit(core, placed, s)
		others := slices.DeleteFunc(slices.Clone(placed), func(o rt.Server) bool { return o.ID == s.ID })
		whole := rt.Holds(core, append(slices.Clone(others), s))
		if v.Admitted != whole.Admitted || v.Admitted && v.Test != whole.Test {
			t.Fatalf("Admit %+v, Holds %+v", v, whole)
		}
		if v.Admitted != (v.Reason == rt.ReasonFits) {
			t.Fatalf("%+v", v)
		}
		if before != fmt.Sprint(servers) {
			t.Fatal("arguments were changed")
		}
		if v.Admitted {
			mustBeSensible(t, core, append(others, s), v)
		}
		rt.PlanCore(core, servers)
		rt.T1(core, servers)
		rt.T1k(2, core, servers)
	})
}

func mustBeSensible(t *testing.T, core rt.Core, servers []rt.Server, v rt.Verdict) {
	charged := rt.PPM(0)
	for _, s := range servers {
		if err := s.Validate(); err != nil {
			t.Fatalf("admitted: %v", err)
		}
		if charged += s.Charge(core.Granularity); charged < 0 {
			t.Fatal("the sum wrapped around")
		}
	}
	if (v.Test == rt.TestT1 || v.Test == rt.TestT1k) && charged > core.Capacity {
		t.Fatalf("%d charged of %d", charged, core.Capacity)
	}
	for i := range servers {
		fewer := slices.Delete(slices.Clone(servers), i, i+1)
		if w := rt.Holds(core, fewer); !w.Admitted && v.Test != rt.TestEDFVD {
			t.Fatalf("%+v passes, without %s it does not: %+v", v, servers[i].ID, w)
		}
	}
}

// Whatever comes in: every core passes, every server is either placed or refused, and nothing is changed.
func FuzzArrange(f *testing.F) {
	for _, data := range corpus() {
		f.Add(data, []byte{0, 1, 2, 3, 4, 5, 6, 7})
	}
	f.Fuzz(func(t *testing.T, data, where []byte) {
		in := bytesOf{data}
		node := rt.Node{Cores: []rt.Core{in.core(0), in.core(1)}, Current: rt.Placement{}, Witness: rt.Placement{}}
		node.Servers = in.servers(10)
		for i, s := range node.Servers {
			if i < len(where) {
				node.Current[s.ID], node.Witness[s.ID] = int(where[i]%4), int(where[i]>>2%4)
			}
		}
		before := fmt.Sprint(node)
		placed, _, refused := rt.Arrange(node)
		if before != fmt.Sprint(node) {
			t.Fatal("arguments were changed")
		}
		seen := map[string]bool{}
		node.Servers = slices.DeleteFunc(node.Servers, func(s rt.Server) bool {
			again := seen[s.ID] || s.Validate() != nil
			seen[s.ID] = seen[s.ID] || s.Validate() == nil
			return again
		})
		if why, ok := feasible(loadsOf(node, placed)); !ok {
			t.Fatal(why)
		}
		for _, s := range node.Servers {
			_, isPlaced := placed[s.ID]
			if _, isRefused := refused[s.ID]; isPlaced == isRefused {
				t.Fatalf("%s is placed: %v, refused: %v", s.ID, isPlaced, isRefused)
			}
		}
	})
}

// Whatever comes in: victims are of the core, less critical, and enough.
func FuzzVictims(f *testing.F) {
	for _, data := range corpus() {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := bytesOf{data}
		load := rt.Load{Core: in.core(0), Servers: in.servers(16)}
		if len(load.Servers) == 0 {
			return
		}
		s := load.Servers[0]
		load.Servers = load.Servers[1:]
		victims, ok := rt.Victims(load, s)
		gone := ids(victims)
		rest := slices.DeleteFunc(slices.Clone(load.Servers), func(o rt.Server) bool { return slices.Contains(gone, o.ID) })
		if ok != rt.Admit(load.Core, rest, s).Admitted && ok {
			t.Fatalf("without %v it does not fit", gone)
		}
		if slices.ContainsFunc(victims, func(v rt.Server) bool { return v.Criticality >= s.Criticality || v.ID == s.ID }) {
			t.Fatalf("victims %v of %+v", gone, s)
		}
	})
}

// Whatever comes in: only names of criticalities are read, and they are read back.
func FuzzParseCriticality(f *testing.F) {
	for _, s := range []string{"", "Low", "MIDDLE", "hIGH", "medium", "K", " Low", "Criticality(7)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		c, err := rt.ParseCriticality(in)
		if err == nil && in != "" && !strings.EqualFold(c.String(), in) {
			t.Fatalf("%q was read as %v", in, c)
		}
		if err != nil && c != rt.Low {
			t.Fatalf("%q: %v with an error", in, c)
		}
	})
}

// Whatever comes in: an answer, and tasks that fit need no more than the server has.
func FuzzAdvisePeriod(f *testing.F) {
	f.Add(words(10_000, 6_000, 6_000), words(8_000, 1_000, 0, 12_000, 1_000, 0))
	f.Add(words(2_000, 600, 900), words(8_000, 1_000, 4_000, 1, 1, 1))
	f.Add(words(65_535, 65_535, 0), words(65_535, 65_535, 65_534))
	f.Add(words(0, 0, 0), words(0, 0, 0))
	f.Fuzz(func(t *testing.T, server, data []byte) {
		sb, tb := bytesOf{server}, bytesOf{data}
		s := rt.Server{Criticality: rt.High, Period: sb.time(), Low: sb.time(), High: sb.time()}
		if s.Validate() != nil {
			return
		}
		var tasks []rt.Task
		for len(tb.data) > 0 && len(tasks) < 6 {
			tasks = append(tasks, rt.Task{Period: tb.time(), WCET: tb.time(), Deadline: tb.time()})
		}
		advice := rt.AdvisePeriod(s, tasks)
		if advice.Fits != (advice.Late == rt.NoTask) || advice.Fits && !advice.FitsRaised {
			t.Fatalf("%+v", advice)
		}
		if advice.FitsEDF && len(tasks) > 0 && bandwidth(tasks)*float64(s.Period) > float64(s.Low)*(1+1e-9) {
			t.Fatalf("%+v: the tasks need more than the server has", advice)
		}
	})
}
