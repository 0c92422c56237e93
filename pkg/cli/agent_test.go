package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAgentRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("servers: [{name: a, period: 10ms, runtime_low: 20ms, pid: 1}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := filepath.Join(t.TempDir(), "good.yaml")
	if err := os.WriteFile(good, []byte("servers: [{name: a, period: 10ms, runtime_low: 1ms, pid: 1}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"agent"}, 2, "--standalone is not given; want a file of servers"},
		{[]string{"agent", "--standalone", "/does/not/exist"}, 1, "--standalone: open /does/not/exist"},
		{[]string{"agent", "--standalone", bad}, 1, `servers[0] "a": runtime_hi: 20000us is above`},
		{[]string{"agent", "--standalone", good, "--fastpath", "/does/not/exist"}, 1, "--fastpath: stat /does/not/exist"},
		{[]string{"agent", "--standalone", good, "--fastpath", "/bin/true", "--state-dir", "here"}, 2, `--state-dir "here": want an absolute path`},
		{[]string{"agent", "--standalone", "-"}, 1, "the file is empty; want servers"},
	} {
		if code, _, err := run(c.args...); code != c.code || !strings.Contains(err, c.want) {
			t.Errorf("%v: exit %d, %q; want %d with %q", c.args, code, err, c.code, c.want)
		}
	}
}
