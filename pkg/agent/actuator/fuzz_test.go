package actuator

import (
	"slices"
	"strings"
	"testing"
)

func FuzzParseJournal(f *testing.F) {
	f.Add(`{"boot":"b"}` + "\n" + `{"controller":"cpu","group":"/a","inode":1,"file":"cpu.max","before":"max 100000"}` + "\n")
	f.Add(`{"boot":"b"}` + "\n" + `{"controller":"cpu","group":"/a","inode":1,"thread":3,"started":9,"attr":{"policy":1}}` + "\n{\"contr")
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
	f.Add("7 (a) b) R 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1", "12 34 5")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, stat, times string) {
		_, _ = parseStartTime(stat)
		_, _, _ = parseProgress(stat, times)
	})
}

func FuzzParseMembership(f *testing.F) {
	f.Add("2:cpu,cpuacct:/a\n0::/b\n")
	f.Fuzz(func(t *testing.T, text string) {
		for controller, group := range parseMembership(text) {
			if controller == "" && !strings.Contains(text, ",") || !strings.HasPrefix(group, "/") {
				t.Fatalf("parseMembership(%q): %q in %q", text, group, controller)
			}
		}
	})
}

// FuzzAppendNumbers: a file read in pieces gives what it gives whole.
func FuzzAppendNumbers(f *testing.F) {
	f.Add("12\n345\n6\n", uint8(4))
	f.Fuzz(func(t *testing.T, text string, cut uint8) {
		at := min(int(cut), len(text))
		whole, rest := appendNumbers(make([]int32, 0, 8), 0, []byte(text))
		pieces, partial := appendNumbers(make([]int32, 0, 8), 0, []byte(text[:at]))
		pieces, partial = appendNumbers(pieces, partial, []byte(text[at:]))
		if !slices.Equal(whole, pieces) || rest != partial {
			t.Fatalf("%q cut at %d: %v %d; want %v %d", text, at, pieces, partial, whole, rest)
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
		if err == nil && (c.Boot == "" || c.Backend == "" || c.GranularityUs < 0 || c.GranularityUs > maxGranularityUs) {
			t.Fatalf("parseChoice(%q) = %+v", text, c)
		}
	})
}
