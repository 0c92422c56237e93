package standalone_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/agent/standalone"
)

// A note that is broken, or names what no run made, refuses the start, and says what to do about it.
func TestABrokenNoteSaysWhatToDo(t *testing.T) {
	for name, c := range map[string]struct{ text, reason string }{
		"cut off":         {`{"identity":"cpu","groups":[{"gro`, "unexpected end of JSON input"},
		"empty":           {"", "unexpected end of JSON input"},
		"no identity":     {`{"groups":[{"group":"/mainspring/a"}]}`, `identity ""; want cpu or cpuset`},
		"all processes":   {`{"identity":"cpu","groups":[{"group":"/"}]}`, `groups[0].group "/"`},
		"another's":       {`{"identity":"cpu","groups":[{"group":"/kubepods/a"}]}`, `groups[0].group "/kubepods/a"`},
		"the shared":      {`{"identity":"cpu","groups":[{"group":"/mainspring"}]}`, `groups[0].group "/mainspring"`},
		"another shared":  {`{"identity":"cpu","groups":[{"group":"/a","shared":true}]}`, `groups[0].group "/a"`},
		"out of ours":     {`{"identity":"cpu","groups":[{"group":"/mainspring/.."}]}`, `groups[0].group "/mainspring/.."`},
		"longer than any": {strings.Repeat(" ", 4<<20) + `{"identity":"cpu"}`, "has more than 2048000 bytes"},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "undo.json")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := standalone.Run(t.Context(), standalone.Options{StateDir: dir, Clock: clock.RealClock{}, Say: func(string) {}})
		for _, want := range []string{file, c.reason, "remove those of that run"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v; want it to say %q", name, err, want)
			}
		}
	}
}

func FuzzNote(f *testing.F) {
	f.Add([]byte(`{"identity":"cpu","groups":[{"group":"/mainspring","shared":true},{"group":"/mainspring/a","ids":{"cpu":7},"before":{"cpu":"/x"}}]}`))
	f.Add([]byte(`{"identity":"cpuset"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		groups, err := standalone.ParseNote(data)
		for _, g := range groups {
			if err == nil && g != standalone.Group && (!strings.HasPrefix(g, standalone.Group+"/") || filepath.Clean(g) != g || strings.Count(g, "/") != 2) {
				t.Errorf("group %q is taken from %q", g, data)
			}
		}
	})
}
