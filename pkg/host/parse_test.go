package host_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

func TestParseCPUList(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]int{
		"": nil, "\n": nil, "0": {0}, "0-3": {0, 1, 2, 3}, "3,1,1": {1, 3}, "0-1,4-5\n": {0, 1, 4, 5},
		"0-7:2/4": {0, 1, 4, 5}, "8191": {8191},
	} {
		got, err := host.ParseCPUList(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"a", "-1", "1-", "-", "3-1", "1,,2", "8192", "0-7:4/2", "0-7:1/0", "0-7:0/2", "0x1", "99999999999"} {
		if got, err := host.ParseCPUList(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

func TestCPUListsSurviveWriting(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cpus := rapid.SliceOf(rapid.IntRange(0, host.MaxCPU)).Draw(t, "cpus")
		got, err := host.ParseCPUList(host.FormatCPUList(cpus))
		if want := slices.Compact(slices.Sorted(slices.Values(cpus))); err != nil || !slices.Equal(got, want) {
			t.Fatalf("got %v, %v, want %v", got, err, want)
		}
	})
}

func TestParseContainerID(t *testing.T) {
	t.Parallel()
	for _, runtime := range []string{host.Containerd, host.CRIO, host.Docker} {
		name, id, err := host.ParseContainerID(runtime + "://" + container)
		if err != nil || name != runtime || id != container {
			t.Errorf("got %q, %q, %v", name, id, err)
		}
	}
	for _, wrong := range []string{
		"", "://", "containerd://", container, "containerd://" + container[1:], "containerd://" + strings.ToUpper(container),
		"rkt://" + container, "containerd://../" + container[3:], "containerd://containerd://" + container, "containerd://" + container + "\n",
	} {
		if _, _, err := host.ParseContainerID(wrong); err == nil {
			t.Errorf("%q: want an error", wrong)
		}
	}
}

func TestParsePSI(t *testing.T) {
	t.Parallel()
	got, err := host.ParsePSI("some avg10=1.12 avg60=40.83 avg300=100.00 total=10588457660\nfull avg10=0.07 avg60=0.00 avg300=0.00 total=3\n")
	want := host.PSI{Some: host.Stall{Avg10: 112, Avg60: 4083, Avg300: 10000, TotalUs: 10588457660}, Full: host.Stall{Avg10: 7, TotalUs: 3}}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, wrong := range []string{"", "full avg10=0.00", "some avg10=x", "some avg10=101", "some avg10=NaN", "some total=-1"} {
		if got, err := host.ParsePSI(wrong); err == nil {
			t.Errorf("%q: got %+v, want an error", wrong, got)
		}
	}
}

func TestParseCPUTimes(t *testing.T) {
	t.Parallel()
	got, err := host.ParseCPUTimes("cpu  3 3 3 3\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu3 1 1 1 1\nintr 7\nctxt 1\n")
	want := []host.CPUTime{{CPU: 0, User: 1, Nice: 2, System: 3, Idle: 4, IOWait: 5, IRQ: 6, SoftIRQ: 7, Stolen: 8}, {CPU: 3, User: 1, Nice: 1, System: 1, Idle: 1}}
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("got %+v, %v, want %+v", got, err, want)
	}
	if got[0].Busy() != 19 || got[0].Rest() != 9 || got[0].Total() != 36 {
		t.Errorf("busy %d, rest %d, total %d", got[0].Busy(), got[0].Rest(), got[0].Total())
	}
	for _, wrong := range []string{"cpu0 1 2 3", "cpux 1 2 3 4", "cpu0 1 2 3 -4", "cpu99999 1 2 3 4"} {
		if got, err := host.ParseCPUTimes(wrong); err == nil {
			t.Errorf("%q: got %+v, want an error", wrong, got)
		}
	}
}

func TestParseMountInfo(t *testing.T) {
	t.Parallel()
	got, err := host.ParseMountInfo("36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n\n37 36 0:3 / /x rw - tmpfs  rw,size=1\n")
	if err != nil || len(got) != 2 {
		t.Fatalf("got %+v, %v", got, err)
	}
	first := got[0]
	if first.ID != 36 || first.Parent != 35 || first.Root != "/mnt1" || first.Point != "/mnt 2" || first.Type != "ext3" || !slices.Equal(first.SuperOptions, []string{"rw", "errors=continue"}) {
		t.Errorf("got %+v", first)
	}
	if second := got[1]; second.Type != "tmpfs" || !slices.Equal(second.SuperOptions, []string{"rw", "size=1"}) {
		t.Errorf("without a source: got %+v", second)
	}
	for _, wrong := range []string{"x", "36 35 98:0 / /mnt rw ext3 /dev/root rw", "a 35 98:0 / /mnt rw - ext3 x rw", "36 b 98:0 / /mnt rw - ext3 x rw", "36 35 98:0 / mnt rw - ext3 x rw"} {
		if got, err := host.ParseMountInfo(wrong); err == nil {
			t.Errorf("%q: got %+v, want an error", wrong, got)
		}
	}
}

func TestParseKernelConfig(t *testing.T) {
	t.Parallel()
	config := host.ParseKernelConfig("# a comment\nCONFIG_HZ=250\nCONFIG_A=y\nCONFIG_V=\"gcc 15\"\n# CONFIG_B is not set\nnonsense\n")
	if config["CONFIG_HZ"] != "250" || !config.On("CONFIG_A") || config["CONFIG_V"] != "gcc 15" || config["CONFIG_B"] != "n" || len(config) != 4 {
		t.Errorf("got %v", config)
	}
}

func TestParseCapabilities(t *testing.T) {
	t.Parallel()
	set, err := host.ParseCapabilities("Name:\tx\nCapEff:\t000001fffeffffff\n")
	if err != nil || !set.Has(host.CapBPF) || set.Has(host.CapSysResource) {
		t.Errorf("got %x, %v", set, err)
	}
	for _, wrong := range []string{"", "CapPrm: 1", "CapEff: x"} {
		if _, err := host.ParseCapabilities(wrong); err == nil {
			t.Errorf("%q: want an error", wrong)
		}
	}
	if host.CapPerfmon.String() != "CAP_PERFMON" || host.Capability(3).String() != "capability 3" {
		t.Errorf("got %s and %s", host.CapPerfmon, host.Capability(3))
	}
}

func TestParseLimit(t *testing.T) {
	t.Parallel()
	limit, err := host.ParseLimit("Limit  Soft  Hard\nMax locked memory         65536                70000                bytes\n", "Max locked memory")
	if err != nil || limit != (host.Limit{Bytes: 65536}) || limit.String() != "65536 bytes" {
		t.Errorf("got %v, %v", limit, err)
	}
	for _, wrong := range []string{"", "Max locked memory", "Max locked memory many x bytes"} {
		if _, err := host.ParseLimit(wrong, "Max locked memory"); err == nil {
			t.Errorf("%q: want an error", wrong)
		}
	}
}

func TestParseBTFNames(t *testing.T) {
	t.Parallel()
	for _, wrong := range [][]byte{nil, make([]byte, 24), append([]byte{0x9f, 0xeb, 1, 0, 24, 0, 0, 0}, []byte(strings.Repeat("\xff", 16))...)} {
		if _, err := host.ParseBTFNames(wrong, "x"); err == nil {
			t.Errorf("%x: want an error", wrong)
		}
	}
}
