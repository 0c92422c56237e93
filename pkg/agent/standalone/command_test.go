package standalone_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/standalone"
)

func TestCommandRefusesWhatMakesNoSense(t *testing.T) {
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
		args  []string
		usage bool
		want  string
	}{
		{nil, true, "--standalone is not given; want a file of servers"},
		{[]string{"--standalone", "/does/not/exist"}, false, "--standalone: open /does/not/exist"},
		{[]string{"--standalone", bad}, false, `servers[0] "a": runtime_hi: 20000us is above`},
		{[]string{"--standalone", good, "--fastpath", "/does/not/exist"}, false, "--fastpath: stat /does/not/exist"},
		{[]string{"--standalone", good}, false, "/fastpath: no such file or directory; build it with make build"},
		{[]string{"--standalone", good, "--fastpath", "/bin/true", "--state-dir", "here"}, true, `--state-dir "here": want an absolute path`},
		{[]string{"--standalone", "-"}, false, "the file is empty; want servers"},
	} {
		command := standalone.Command{In: strings.NewReader(""), Out: new(bytes.Buffer), Err: new(bytes.Buffer)}
		flags := flag.NewFlagSet("", flag.ContinueOnError)
		command.AddFlags(flags)
		if err := flags.Parse(c.args); err != nil {
			t.Fatal(err)
		}
		err := command.Run(t.Context())
		if err == nil || errors.Is(err, standalone.ErrUsage) != c.usage || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v; want %q", c.args, err, c.want)
		}
	}
}
