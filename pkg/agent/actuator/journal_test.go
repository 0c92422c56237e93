package actuator

import (
	"strings"
	"testing"
)

func TestAJournalOfAnotherBootIsVoid(t *testing.T) {
	whole := `{"controller":"cpu","group":"/a","inode":1,"file":"cpu.max","before":"max 100000"}` + "\n"
	for name, c := range map[string]struct {
		text    string
		records int
		broken  bool
	}{
		"of this boot":              {`{"boot":"b"}` + "\n" + whole, 1, false},
		"its last line cut":         {`{"boot":"b"}` + "\n" + whole + `{"contr`, 1, false},
		"a line of it broken":       {`{"boot":"b"}` + "\n" + "{\n" + whole, 0, true},
		"of another boot":           {`{"boot":"a"}` + "\n" + whole, 0, false},
		"of another boot, broken":   {`{"boot":"a"}` + "\n" + "{\n" + whole, 0, false},
		"what a lost power left":    {"\x00\x00\x00\n" + whole, 0, false},
		"nothing but half a header": {`{"boo`, 0, false},
	} {
		records, err := parseJournal([]byte(c.text), "b")
		if len(records) != c.records || (err != nil) != c.broken {
			t.Errorf("%s: %d records, %v; want %d, broken %v", name, len(records), err, c.records, c.broken)
		}
	}
}

// What no process would read again is not written: the next one starts, and has all else.
func TestAJournalIsNotLongerThanWhatIsRead(t *testing.T) {
	dir := t.TempDir()
	j, err := openJournal(dir, "b")
	if err != nil {
		t.Fatal(err)
	}
	long := record{Controller: "cpu", Group: "/a", Inode: 1, File: "cpu.max", Before: strings.Repeat("x", maxJournal)}
	if err := j.keep(long); err == nil || !strings.Contains(err.Error(), "want at most") || j.has(long) {
		t.Errorf("a record of the whole journal's length is kept: %v", err)
	}
	for _, group := range []string{"/b", "/c"} {
		half := record{Controller: "cpu", Group: group, Inode: 1, File: "cpu.max", Before: strings.Repeat("x", maxJournal/2)}
		if err := j.keep(half); (err == nil) != (group == "/b") {
			t.Errorf("half the journal's length for %s: %v", group, err)
		}
	}
	if err := j.drop(j.of("/b")...); err != nil {
		t.Fatal(err)
	}
	if err := j.keep(record{Controller: "cpu", Group: "/d", Inode: 1, File: "cpu.max", Before: strings.Repeat("x", maxJournal/2)}); err != nil {
		t.Errorf("with room again: %v", err)
	}
	next, err := openJournal(dir, "b")
	if err != nil {
		t.Fatal(err)
	}
	if len(next.records) != 1 || next.records[0].Group != "/d" {
		t.Errorf("the next process has %d records; want the one that there was room for", len(next.records))
	}
}
