package trace_test

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/cli/trace"
)

const header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"

func TestReadsTheFixture(t *testing.T) {
	t.Parallel()
	f, err := os.Open("testdata/pods.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pods, err := trace.ReadPods(f, "pods.csv", nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(pods) != 30 {
		t.Fatalf("got %d pods, want 30", len(pods))
	}
	if pods[11].WasScheduled || !pods[12].WasScheduled {
		t.Errorf("an empty scheduled_time alone means never placed")
	}
}

func TestReadsOnePod(t *testing.T) {
	t.Parallel()
	in := header + "a,6000,12288,1,460,V100M16|V100M32,LS,Running,10,100,12\n"
	pods, err := trace.ReadPods(strings.NewReader(in), "in.csv", nil)
	if err != nil {
		t.Fatal(err)
	}
	p := pods[0]
	if p.CPUMilli != 6000 || p.MemoryMiB != 12288 || !p.FractionalGPU() || len(p.GPUModels) != 2 {
		t.Errorf("got %+v", p)
	}
	if p.Wait() != 2*time.Second || p.Work() != 88*time.Second {
		t.Errorf("wait %v, work %v", p.Wait(), p.Work())
	}
}

// A column of integers that has a gap comes back from pandas with decimal points, and the gap as nothing or as nan.
func TestReadsWhatPandasWrites(t *testing.T) {
	t.Parallel()
	plain, err := trace.ReadPods(strings.NewReader(header+"a,6000,12288,1,460,,LS,Running,10,100,12\nb,6000,12288,0,,,LS,Running,10,100,\n"), "in.csv", nil)
	if err != nil {
		t.Fatal(err)
	}
	pandas, err := trace.ReadPods(strings.NewReader(header+"a,6000.0,12288.0,1.0,460.0,,LS,Running,10.0,100.0,12.0\nb,6000.0,12288.0,0.0,nan,,LS,Running,10.0,100.00,NaN\n"), "in.csv", nil)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(plain, pandas) {
		t.Errorf("got  %+v\nwant %+v", pandas, plain)
	}
}

func TestFaultsNameLineColumnValueAndWhatIsRight(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ row, want string }{
		"cpu":           {"a,x,1,0,0,,,,0,1,0", `in.csv:2: column "cpu_milli": "x"; want a number >= 0 in milli`},
		"negative":      {"a,1,-1,0,0,,,,0,1,0", `in.csv:2: column "memory_mib": "-1"; want a number >= 0 in mib`},
		"gpus":          {"a,1,1,1.5,0,,,,0,1,0", `in.csv:2: column "num_gpu": "1.5"; want a whole number from 0 to 1024`},
		"gpus, a tenth": {"a,1,1,1.10,0,,,,0,1,0", `in.csv:2: column "num_gpu": "1.10"; want a whole number from 0 to 1024`},
		"gpus, a point": {"a,1,1,1.,0,,,,0,1,0", `in.csv:2: column "num_gpu": "1."; want a whole number from 0 to 1024`},
		"share":         {"a,1,1,1,1500,,,,0,1,0", `in.csv:2: column "gpu_milli": "1500"; want a whole number from 0 to 1000`},
		"no share":      {"a,1,1,1,0,,,,0,1,0", `in.csv:2: column "gpu_milli": "0"; want 1 to 1000, because the pod asks for one GPU`},
		"no name":       {",1,1,0,0,,,,0,1,0", `in.csv:2: column "name": ""; want a name`},
		"no creation":   {"a,1,1,0,0,,,,,1,", `in.csv:2: column "creation_time": ""; want a time; every pod needs one`},
		"no end":        {"a,1,1,0,0,,,,0,,0", `in.csv:2: column "deletion_time": ""; want a time; every pod needs an end`},
		"backwards":     {"a,1,1,0,0,,,,5,1,", `in.csv:2: column "deletion_time": "1"; want a time that is not before creation_time`},
		"too early":     {"a,1,1,0,0,,,,5,9,1", `in.csv:2: column "scheduled_time": "1"; want a time between creation and deletion`},
		"not a number":  {"a,NaN,1,0,0,,,,5,9,6", `in.csv:2: column "cpu_milli": "NaN"`},
		"too far":       {"a,1,1,0,0,,,,5,1e300,6", `in.csv:2: column "deletion_time": "1e300"`},
		"ragged":        {"a,1,1", `in.csv:2: the line has another number of values than the header; want 11`},
		"a quote":       {`a,1"2,1,0,0,,,,0,1,0`, `in.csv:2: character 4`},
		"a second name": {"a,1,1,0,0,,,,0,1,0\na,1,1,0,0,,,,0,1,0", `in.csv:3: column "name": "a"; want another name: line 2 has this one`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := trace.ReadPods(strings.NewReader(header+c.row+"\n"), "in.csv", nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestFaultsAreBoundedAndCounted(t *testing.T) {
	t.Parallel()
	in := header + strings.Repeat("a,x,1,0,0,,,,0,1,0\n", 1) + strings.Repeat(",1,1,0,0,,,,0,1,0\n", 20)
	_, err := trace.ReadPods(strings.NewReader(in), "in.csv", nil)
	var faults *trace.Faults
	if !errors.As(err, &faults) || faults.Total != 21 || len(faults.First) != 5 {
		t.Fatalf("got %v", err)
	}
	if !strings.HasSuffix(err.Error(), "and 16 more") {
		t.Errorf("got %v", err)
	}
}

func TestHeaderFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"empty":   {"", "in.csv: the file is empty; want a header line"},
		"missing": {"name,cpu_milli\n", `in.csv:1: column "memory_mib" (field memory_mib) is missing; the header has name, cpu_milli; name another with --map`},
		"no end":  {"name,cpu_milli,memory_mib,creation_time\na,1,1,0\n", "in.csv:2: neither deletion_time nor duration has a column"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := trace.ReadPods(strings.NewReader(c.in), "in.csv", nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestMapsColumnsAndUnits(t *testing.T) {
	t.Parallel()
	pods, machines, err := trace.ParseMapping([]string{
		"name=job", "cpu_milli=cpu:cores", "memory_mib=ram:gib", "num_gpu=gpus", "creation_time=submit:ms", "duration=length",
		"node.sn=host", "node.cpu_milli=cores:cores", "node.memory_mib=ram:bytes",
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := trace.ReadPods(strings.NewReader("\ufeffjob,cpu,ram,gpus,submit,length\nj1,1.5,2,8,1500,60\n"), "jobs.csv", pods)
	if err != nil {
		t.Fatal(err)
	}
	p := got[0]
	if p.CPUMilli != 1500 || p.MemoryMiB != 2048 || p.GPUs != 8 || p.Created != 1500*time.Millisecond || p.Deleted != 61500*time.Millisecond {
		t.Errorf("got %+v", p)
	}
	nodes, err := trace.ReadMachines(strings.NewReader("host,cores,ram\nh,64,1073741824\n"), "hosts.csv", machines)
	if err != nil {
		t.Fatal(err)
	}
	if nodes[0].CPUMilli != 64000 || nodes[0].MemoryMiB != 1024 {
		t.Errorf("got %+v", nodes[0])
	}
}

func TestMappingFaults(t *testing.T) {
	t.Parallel()
	for entry, want := range map[string]string{
		"cpu_milli":            "want field=column",
		"cpus=x":               `field "cpus" is unknown; want one of name, cpu_milli`,
		"cpu_milli=x:gib":      `unit "gib" does not fit field "cpu_milli"; want milli, cores`,
		"name=x:s":             `unit "s" does not fit field "name"; want no unit`,
		"node.cpu=x":           `field "cpu" is unknown; want one of sn`,
		"creation_time=t:days": "want s, ms, us",
	} {
		if _, _, err := trace.ParseMapping([]string{entry}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", entry, err, want)
		}
	}
	if _, _, err := trace.ParseMapping([]string{"name=a", "name=b"}); err == nil {
		t.Errorf("a field mapped twice was accepted")
	}
}

// What is written in openb's columns is read back unchanged.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 20).Draw(t, "pods")
		var buf bytes.Buffer
		buf.WriteString(header)
		w := csv.NewWriter(&buf)
		want := make([]trace.Pod, n)
		for i := range want {
			want[i] = drawPod(t, i)
			_ = w.Write(record(want[i]))
		}
		w.Flush()
		got, err := trace.ReadPods(&buf, "in.csv", nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if fmt.Sprintf("%+v", got[i]) != fmt.Sprintf("%+v", want[i]) {
				t.Fatalf("got %+v\nwant %+v", got[i], want[i])
			}
		}
	})
}

// Whatever the bytes are, reading ends with pods or with an error that names the file.
func TestNeverPanics(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := header + rapid.StringMatching(`([a-z0-9.,"|-]{0,40}\n){0,5}`).Draw(t, "lines")
		if _, err := trace.ReadPods(strings.NewReader(in), "in.csv", nil); err != nil && !strings.HasPrefix(err.Error(), "in.csv") {
			t.Fatalf("the error does not name the file: %v", err)
		}
	})
}

func drawPod(t *rapid.T, i int) trace.Pod {
	created := rapid.Int64Range(0, 20_000_000).Draw(t, "created")
	life := rapid.Int64Range(0, 2_000_000).Draw(t, "life")
	p := trace.Pod{
		Line:      i + 2,
		Name:      fmt.Sprintf("pod-%d", i),
		CPUMilli:  rapid.Int64Range(0, 200_000).Draw(t, "cpu"),
		MemoryMiB: rapid.Int64Range(0, 2_000_000).Draw(t, "memory"),
		GPUs:      rapid.Int64Range(0, 8).Draw(t, "gpus"),
		GPUMilli:  rapid.Int64Range(1, 1000).Draw(t, "share"),
		GPUModels: rapid.SliceOfN(rapid.SampledFrom([]string{"T4", "A10", "V100M32"}), 0, 3).Draw(t, "models"),
		QoS:       rapid.SampledFrom([]string{"", "LS", "BE"}).Draw(t, "qos"),
		Created:   time.Duration(created) * time.Second,
		Deleted:   time.Duration(created+life) * time.Second,
	}
	if len(p.GPUModels) == 0 {
		p.GPUModels = nil
	}
	if rapid.Bool().Draw(t, "scheduled") {
		p.WasScheduled = true
		p.Scheduled = time.Duration(created+rapid.Int64Range(0, life).Draw(t, "wait")) * time.Second
	}
	return p
}

func record(p trace.Pod) []string {
	seconds := func(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }
	scheduled := ""
	if p.WasScheduled {
		scheduled = seconds(p.Scheduled)
	}
	return []string{
		p.Name, strconv.FormatInt(p.CPUMilli, 10), strconv.FormatInt(p.MemoryMiB, 10), strconv.FormatInt(p.GPUs, 10),
		strconv.FormatInt(p.GPUMilli, 10), strings.Join(p.GPUModels, "|"), p.QoS, p.Phase,
		seconds(p.Created), seconds(p.Deleted), scheduled,
	}
}
