package actuator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

func FuzzParseJournal(f *testing.F) {
	f.Add(`{"boot":"b"}` + "\n" + `{"controller":"cpu","group":"/a","inode":1,"file":"cpu.max","before":"max 100000"}` + "\n")
	f.Add(`{"boot":"b"}` + "\n" + `{"controller":"cpu","group":"/a","inode":1,"thread":3,"started":9,"attr":{"policy":1}}` + "\n{\"contr")
	f.Add(`{"boot":"b"}` + "\n" + `{"controller":"cpu","group":"/a","thread":4294967303,"attr":{}}` + "\n") // thread 7 to the kernel
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		records, err := parseJournal([]byte(text), "b")
		if err != nil {
			return
		}
		for _, r := range records {
			if strings.Contains(r.File, "/") || strings.Contains(r.Group, "..") && slices.Contains(strings.Split(r.Group, "/"), "..") {
				t.Fatalf("record %+v leads out of its group", r)
			}
			if int(int32(r.Thread)) != r.Thread {
				t.Fatalf("record %+v is of another thread to the kernel", r)
			}
		}
		if again, err := parseJournal(journaled(t, records...), "b"); err != nil || !reflect.DeepEqual(again, records) && len(records) > 0 {
			t.Fatalf("%+v, written and read again %+v, %v", records, again, err)
		}
	})
}

// journaled is the text of a journal of boot b.
func journaled(t *testing.T, records ...record) []byte {
	t.Helper()
	lines := []any{journalHead{Boot: "b"}}
	for _, r := range records {
		lines = append(lines, r)
	}
	var text bytes.Buffer
	for _, line := range lines {
		if err := json.NewEncoder(&text).Encode(line); err != nil {
			t.Fatal(err)
		}
	}
	return text.Bytes()
}

// FuzzRooms: room that a former process made is believed only where it makes sense, ends with time, and has the levels sized for it.
func FuzzRooms(f *testing.F) {
	for _, seed := range []string{
		`{"ID":"p/c","Cgroup":"/kubepods/pod/c","Core":1,"PeriodUs":10000,"DeadlineUs":10000,"BudgetUs":1000,"HighUs":2000,"Priority":20,"MadeNs":5}`,
		`{"Cgroup":"/kubepods/pod/c","PeriodUs":10000,"HighUs":2000,"MadeNs":-9223372036854775808}`,           // its age wraps around
		`{"Cgroup":"/kubepods/pod/c","PeriodUs":9223372036854775807,"HighUs":9223372036854775807,"MadeNs":1}`, // its demand does
		`{"Cgroup":"/kubepods/pod/c","PeriodUs":10000,"HighUs":2000,"MadeNs":9223372036854775807}`,            // from the future
		`{"Cgroup":"/kubepods/pod/other","PeriodUs":10000,"HighUs":2000}`, `{"Cgroup":"kubepods/pod/c"}`, `{"Cgroup":`, "null", "",
	} {
		f.Add("/kubepods/pod/c", seed)
	}
	f.Add("kubepods/pod/c", `{"Cgroup":"kubepods/pod/c","PeriodUs":10000,"HighUs":2000}`)
	f.Fuzz(func(t *testing.T, group, text string) {
		const now = int64(time.Hour)
		records, err := parseJournal(journaled(t, record{Controller: roomRecord, Group: group, File: "server", Before: text}), "b")
		if err != nil {
			return
		}
		read := func(records ...record) map[string]room {
			m := &machine{journal: &journal{records: records}, now: func() int64 { return now }, rooms: map[string]room{}}
			m.expected()
			return m.rooms
		}
		rooms := read(records...)
		if len(rooms) == 0 {
			return
		}
		r := rooms[records[0].Group]
		if len(rooms) != 1 || r.Cgroup != records[0].Group || !strings.HasPrefix(r.Cgroup, "/") || r.validate() != nil {
			t.Fatalf("%q has room for %+v", text, rooms)
		}
		if age := now - r.MadeNs; age < 0 || r.MadeNs < 0 {
			t.Fatalf("%q: room of age %d ns", text, age)
		}
		if need := (demand{r.HighUs, r.PeriodUs}).within(windowUs); need < r.HighUs || need > 1<<40 {
			t.Fatalf("%q: a level needs %d us for %d of %d", text, need, r.HighUs, r.PeriodUs)
		}
		noted, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		records[0].Before = string(noted)
		if again := read(records...)[r.Cgroup]; !reflect.DeepEqual(again, r) {
			t.Fatalf("%+v, noted and read again %+v", r, again)
		}
	})
}

func FuzzParseBudget(f *testing.F) {
	f.Add("1000", "10000")
	f.Add("-1", "0")
	f.Fuzz(func(t *testing.T, runtime, period string) {
		if b, err := parseBudget(runtime, period); err == nil && (b.RuntimeUs < 0 || b.PeriodUs <= 0) {
			t.Fatalf("parseBudget(%q, %q) = %v", runtime, period, b)
		}
	})
}

func FuzzParseMax(f *testing.F) {
	f.Add("max 100000")
	f.Add("max 0")
	f.Add("1000 10000")
	f.Fuzz(func(t *testing.T, text string) {
		if b, err := parseMax(text); err == nil && (b.RuntimeUs < -1 || b.PeriodUs < 0 || b.PeriodUs == 0 && b.RuntimeUs != -1) {
			t.Fatalf("parseMax(%q) = %v", text, b)
		}
	})
}

func FuzzParseMulti(f *testing.F) {
	f.Add("0 1000 0 ")
	f.Fuzz(func(t *testing.T, text string) {
		runtimes, err := parseMulti(text)
		if err == nil && slices.ContainsFunc(runtimes, func(n int64) bool { return n < 0 }) {
			t.Fatalf("parseMulti(%q) = %v", text, runtimes)
		}
	})
}

func FuzzParseStat(f *testing.F) {
	f.Add("a) b", "7 (a) b) R 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1", "12 34 5", uint64(4242))
	f.Add("\n) S 1 (", "7 (a", "-1", uint64(math.MaxUint64))
	f.Add("", "", "", uint64(0))
	f.Fuzz(func(t *testing.T, name, stat, times string, number uint64) {
		if started, err := parseStartTime(stat); err == nil && !strings.Contains(stat, strconv.FormatUint(started, 10)) {
			t.Fatalf("%q: start time %d", stat, started)
		}
		if used, state, err := parseProgress(stat, times); err == nil && (!strings.Contains(times, strconv.FormatUint(used, 10)) || !strings.Contains(stat, string([]byte{state}))) {
			t.Fatalf("%q, %q: %d ns, state %q", stat, times, used, state)
		}
		// Whatever a thread calls itself, what the kernel writes behind that counts.
		stat = fmt.Sprintf("7 (%s) D 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 %d 1 1\n", name, number)
		times = fmt.Sprintf("%d 34 5\n", number)
		started, err := parseStartTime(stat)
		if err != nil || started != number {
			t.Fatalf("%q: start time %d, %v", stat, started, err)
		}
		if used, state, err := parseProgress(stat, times); err != nil || used != number || state != uninterruptible {
			t.Fatalf("%q, %q: %d ns, state %q, %v", stat, times, used, state, err)
		}
	})
}

func FuzzParseMembership(f *testing.F) {
	f.Add("2:cpu,cpuacct:/a\n0::/b\n", "a")
	f.Add("0::/b (deleted)\n", "a: b ")
	f.Fuzz(func(t *testing.T, text, name string) {
		for controller, group := range parseMembership(text) {
			if controller == "" && !strings.Contains(text, ",") || !strings.HasPrefix(group, "/") {
				t.Fatalf("parseMembership(%q): %q in %q", text, group, controller)
			}
		}
		if strings.Contains(name, "\n") {
			return // the kernel takes no such name
		}
		text = fmt.Sprintf("3:cpuset:/x\n2:cpu,cpuacct:/%s\n1:name=systemd:/y\n0::/%s\n", name, name)
		want := map[string]string{"cpuset": "/x", "cpu": "/" + name, "cpuacct": "/" + name, "name=systemd": "/y", host.Unified: "/" + name}
		if got := parseMembership(text); !maps.Equal(got, want) {
			t.Fatalf("parseMembership(%q) = %q; want %q", text, got, want)
		}
	})
}

// FuzzParseProcesses: nothing is taken for a process that a system call would take for anything else.
func FuzzParseProcesses(f *testing.F) {
	f.Add("12\n345\n", uint32(4194304))
	f.Add("0\n7\n", uint32(0)) // of another PID namespace
	f.Add("-1\n", uint32(1<<31))
	f.Add("4294967303 +7 0x7 7_7", uint32(7)) // the first is 7 to the kernel
	f.Fuzz(func(t *testing.T, text string, number uint32) {
		pids, err := parseProcesses(text)
		if fields := strings.Fields(text); (err == nil) != (len(pids) == len(fields)) {
			t.Fatalf("parseProcesses(%q) = %v, %v", text, pids, err)
		}
		for _, pid := range pids {
			if pid <= 0 || pid > math.MaxInt32 || !strings.Contains(text, strconv.Itoa(pid)) {
				t.Fatalf("parseProcesses(%q) = %v", text, pids)
			}
		}
		pids, err = parseProcesses(fmt.Sprintf("5\n%d\n6\n", number))
		want := []int{5, int(number), 6}
		if known := number > 0 && number <= math.MaxInt32; !known {
			want = []int{5, 6}
		}
		if !slices.Equal(pids, want) || err != nil && !strings.Contains(err.Error(), strconv.Quote(fmt.Sprint(number))) {
			t.Fatalf("process %d: %v, %v", number, pids, err)
		}
	})
}

// FuzzAppendNumbers: a file read in pieces gives what it gives whole, and of that what stands there.
func FuzzAppendNumbers(f *testing.F) {
	f.Add("12\n345\n6\n", uint8(4))
	f.Add("0\n7\n", uint8(1))
	f.Add("4294967303\n2147483648\n99999999999999999999\n8\n", uint8(9)) // they wrap around: the first is 7 to 32 bits
	f.Fuzz(func(t *testing.T, text string, cut uint8) {
		at := min(int(cut), len(text))
		whole, rest := appendNumbers(make([]int32, 0, 8), 0, []byte(text))
		pieces, partial := appendNumbers(make([]int32, 0, 8), 0, []byte(text[:at]))
		pieces, partial = appendNumbers(pieces, partial, []byte(text[at:]))
		if !slices.Equal(whole, pieces) || rest != partial {
			t.Fatalf("%q cut at %d: %v %d; want %v %d", text, at, pieces, partial, whole, rest)
		}
		words := strings.FieldsFunc(text, func(c rune) bool { return c < '0' || c > '9' })
		for _, number := range whole {
			if number <= 0 || !slices.ContainsFunc(words, func(w string) bool { return strings.TrimLeft(w, "0") == strconv.Itoa(int(number)) }) {
				t.Fatalf("%q has no thread %d", text, number)
			}
		}
	})
}

func TestParseStat(t *testing.T) {
	const stat = "7 (a) b) R 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1"
	if started, err := parseStartTime(stat); err != nil || started != 4242 {
		t.Errorf("start time %d, %v; want 4242", started, err)
	}
	if used, state, err := parseProgress(stat, "12 34 5\n"); err != nil || used != 12 || state != runnable {
		t.Errorf("progress %d %c, %v; want 12 R", used, state, err)
	}
}

func FuzzParseChoice(f *testing.F) {
	f.Add(`{"boot":"b","backend":"rtgroup","granularityUs":4000}`)
	f.Add(`{"boot":"b","backend":"x","granularityUs":-1}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseChoice([]byte(text))
		if err != nil {
			return
		}
		if c.Boot == "" || c.Backend == "" || c.GranularityUs < 0 || c.GranularityUs > maxGranularityUs {
			t.Fatalf("parseChoice(%q) = %+v", text, c)
		}
		data, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parseChoice(data); err != nil || again != c {
			t.Fatalf("%+v, kept and read again %+v, %v", c, again, err)
		}
	})
}
