package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/cli"
)

func run(args ...string) (code int, out, err string) {
	var stdout, stderr bytes.Buffer
	code = cli.Main(context.Background(), args, cli.Streams{In: strings.NewReader(""), Out: &stdout, Err: &stderr})
	return code, stdout.String(), stderr.String()
}

func TestUsageErrorsAreOneLineAndExitTwo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"dmeo"}, `"dmeo" is not a command of mainspring`},
		{[]string{"demo", "now"}, `mainspring demo takes no argument, but got "now"`},
		{[]string{"demo", "--fast"}, "unknown flag: --fast"},
		{[]string{"replay"}, "--pods is missing; want the CSV file of the recorded pods"},
		{[]string{"replay", "--pods", "x", "--speed", "0"}, "--speed is 0; want more than 0"},
		{[]string{"replay", "--pods", "x", "--speed", "NaN"}, "--speed is NaN"},
		{[]string{"replay", "--pods", "x", "--limit", "-1"}, "--limit is -1"},
		{[]string{"replay", "--pods", "x", "--from", "-1"}, "--from is -1"},
		{[]string{"replay", "--pods", "x", "--from", "NaN"}, "--from is NaN; want a second of the trace, from 0 to 9000000000"},
		{[]string{"replay", "--pods", "x", "--from", "Inf"}, "--from is +Inf; want a second of the trace"},
		{[]string{"replay", "--pods", "x", "--from", "-Inf"}, "--from is -Inf; want a second of the trace"},
		{[]string{"replay", "--pods", "x", "--from", "1e300"}, "--from is 1e+300; want a second of the trace"},
		{[]string{"replay", "--pods", "x", "--settle", "-1s"}, "--settle is -1s"},
		{[]string{"local", "down"}, "mainspring local down wants one argument, the cluster's directory, but got 0"},
		{[]string{"local", "import", "dir"}, "mainspring local import wants the cluster's directory and the files of images, but got 1 arguments"},
		{[]string{"local", "image", "--reference=a.test/b:1", "--output=x"}, "mainspring local image wants the paths of programs"},
		{[]string{"local", "image", "/bin/sh"}, `--reference is "" and --output is ""; want the image's name and a file to write`},
		{[]string{"local", "list", "all"}, `mainspring local list takes no argument, but got "all"`},
		{[]string{"explain", "pod"}, "mainspring explain pod wants one argument, the pod's name, but got 0"},
		{[]string{"explain", "pod", "p", "-o", "yaml"}, `--output is "yaml"; want text or json`},
		{[]string{"explain", "pod", "p", "--rt-budget-granularity", "10ns"}, "--rt-budget-granularity is 10ns; want whole microseconds"},
		{[]string{"queue", "all"}, `mainspring queue takes no argument, but got "all"`},
		{[]string{"queue", "-o", "yaml"}, `--output is "yaml"; want text, wide or json`},
		{[]string{"cost", "--by", "colour"}, `--by is "colour"; want namespace, workload, node or nodepool`},
		{[]string{"power", "-o", "yaml"}, `--output is "yaml"; want text, json or csv`},
		{[]string{"queue", "--interval", "1ms"}, "--interval is 1ms; want at least 100ms"},
		{[]string{"queue", "--queue-age-step", "0s"}, "--queue-age-step is 0s; want more than 0s"},
		{[]string{"migrate"}, "mainspring migrate wants one argument, the pod's name, but got 0"},
		{[]string{"migrate", "p", "--strategy", "Teleport"}, `--strategy is "Teleport"; want Checkpoint, Surge, Restart or Evict`},
		{[]string{"migrate", "p", "--timeout", "1ms"}, "--timeout is 1ms; want from 1s to 24h, or 0s for none"},
		{[]string{"drain", "a", "b"}, "mainspring drain wants one argument, the node's name, but got 2"},
		{[]string{"drain", "a", "--interval", "1ms"}, "--interval is 1ms; want at least 10ms"},
		{[]string{"drain", "a", "--abort-timeout", "0s"}, "--abort-timeout is 0s; want at least 1s"},
		{[]string{"local", "sideways"}, `"sideways" is not a command of mainspring local`},
	} {
		code, _, err := run(c.args...)
		if code != 2 || !strings.Contains(err, c.want) || strings.Count(err, "\n") != 1 {
			t.Errorf("%v: exit %d, %q; want 2 with %q", c.args, code, err, c.want)
		}
	}
}

func TestFailuresAreOneLineAndExitOne(t *testing.T) {
	t.Parallel()
	recorded := filepath.Join("trace", "testdata", "pods.csv")
	bad := filepath.Join(t.TempDir(), "bad.csv")
	if err := os.WriteFile(bad, []byte("name,cpu_milli,memory_mib,creation_time,deletion_time\na,many,1,0,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"replay", "--pods", "/nowhere.csv"}, "opening trace: open /nowhere.csv: no such file or directory"},
		{[]string{"replay", "--pods", bad}, `bad.csv:2: column "cpu_milli": "many"; want a number >= 0 in milli`},
		{[]string{"replay", "--pods", bad, "--map", "cpu=x"}, `--map "cpu=x": field "cpu" is unknown`},
		{[]string{"replay", "--pods", recorded, "--report", filepath.Join(bad, "out")}, fmt.Sprintf("--report %q: mkdir %s: not a directory; want a directory that can be written", filepath.Join(bad, "out"), bad)},
		{[]string{"demo", "--report", bad}, fmt.Sprintf("--report %q: mkdir %s: not a directory; want a directory that can be written", bad, bad)},
		{[]string{"local", "down", t.TempDir()}, "no local cluster runs there"},
		{[]string{"demo", "--report", t.TempDir(), "--controller", "/nowhere"}, `--controller "/nowhere": stat /nowhere: no such file or directory; want an executable file`},
		{[]string{"migrate", "p", "--kubeconfig", "/nowhere"}, "reading kubeconfig: stat /nowhere: no such file or directory"},
		{[]string{"drain", "n", "--kubeconfig", "/nowhere"}, "reading kubeconfig: stat /nowhere: no such file or directory"},
		{[]string{"explain", "pod", "p", "--kubeconfig", "/nowhere"}, "reading kubeconfig: stat /nowhere: no such file or directory"},
	} {
		code, _, err := run(c.args...)
		if code != 1 || !strings.Contains(err, c.want) || strings.Count(err, "\n") != 1 {
			t.Errorf("%v: exit %d, %q; want 1 with %q", c.args, code, err, c.want)
		}
	}
}

// What a cluster left that was killed is removed, and the command says that it had ended.
func TestDownOfAClusterThatWasKilled(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cluster")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "mainspring-local.json"), fmt.Appendf(nil, `{"pid": %d, "dir": %q}`, os.Getpid(), dir), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, err := run("local", "down", dir); code != 0 || !strings.Contains(out, "had ended already; its files are removed") {
		t.Errorf("exit %d, %q, %q", code, out, err)
	}
}

func TestHelpAndVersion(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"help"}, {"--help"}} {
		code, out, _ := run(args...)
		for _, want := range []string{"demo", "replay", "local", "explain", "version", "Nothing outside this machine is touched"} {
			if code != 0 || !strings.Contains(out, want) {
				t.Errorf("%v: exit %d, %q is missing in\n%s", args, code, want, out)
			}
		}
		if strings.Contains(out, "completion") {
			t.Errorf("%v shows completion", args)
		}
	}
	if code, out, _ := run("version"); code != 0 || !strings.HasPrefix(out, "mainspring ") {
		t.Errorf("exit %d, %q", code, out)
	}
	if code, out, _ := run("replay", "--help"); code != 0 || !strings.Contains(out, "--map field=column[:unit]") {
		t.Errorf("exit %d, %q", code, out)
	}
}
