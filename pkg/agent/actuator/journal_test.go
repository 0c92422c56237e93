package actuator

import "testing"

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
