package fastpath_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath"
)

// What the user set in GODEBUG stays, and does not hide what the fast path needs.
func TestGODEBUGOfTheEnvironmentIsKept(t *testing.T) {
	const mark = "MAINSPRING_FASTPATH_REALTIME=1"
	for name, c := range map[string]struct{ given, want []string }{
		"none":       {[]string{"A=1"}, []string{"A=1", "GODEBUG=asyncpreemptoff=1,gcstoptheworld=2", mark}},
		"empty":      {[]string{"GODEBUG="}, []string{"GODEBUG=asyncpreemptoff=1,gcstoptheworld=2", mark}},
		"others":     {[]string{"GODEBUG=madvdontneed=1", "A=1"}, []string{"GODEBUG=madvdontneed=1,asyncpreemptoff=1,gcstoptheworld=2", "A=1", mark}},
		"against us": {[]string{"GODEBUG=asyncpreemptoff=0"}, []string{"GODEBUG=asyncpreemptoff=0,asyncpreemptoff=1,gcstoptheworld=2", mark}},
		"twice":      {[]string{"GODEBUG=x=1", "GODEBUG=x=2"}, []string{"GODEBUG=x=1,asyncpreemptoff=1,gcstoptheworld=2", mark}},
	} {
		if got := fastpath.Again(c.given); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q; want %q", name, got, c.want)
		}
	}
}

// Of several settings of the same name Go's runtime takes the last: inittrace says so before main.
func TestTheLastSettingOfGODEBUGCounts(t *testing.T) {
	child := exec.Command(os.Args[0], "-test.run=^$")
	for settings, want := range map[string]bool{"inittrace=0,inittrace=1": true, "inittrace=1,inittrace=0": false} {
		child = exec.Command(child.Path, child.Args[1:]...)
		child.Env = append(os.Environ(), "GODEBUG="+settings)
		out, err := child.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if got := strings.Contains(string(out), "init runtime"); got != want {
			t.Errorf("GODEBUG=%s: inittrace is %t; want %t", settings, got, want)
		}
	}
}
