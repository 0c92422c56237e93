package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// answerOf is what the kubelet says of a dump that failed.
func answerOf(log string) error {
	return errors.New(`checkpointing container app: the kubelet answers 500: checkpointing of default/web/app failed (rpc error: code = Unknown desc = checkpointing container "c1" failed: ` +
		"runc did not terminate successfully: exit status 1: criu failed: type NOTIFY errno 0 path= " + log + ": unknown)")
}

func TestADumpThatFailsTellsWhy(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300)
	for name, c := range map[string]struct{ log, want string }{
		"the last three": {
			log:  "(00.000012) Version: 4.0\n(00.1) Error (a.c:1): first\n(00.2) Error (b.c:2): second\n(00.3)   7: Error (c.c:3): third\nplain\n(00.4) Error (d.c:4): fourth\n",
			want: "; CRIU: (b.c:2): second; (c.c:3): third; (d.c:4): fourth",
		},
		"behind much":            {log: strings.Repeat("(00.000012) nothing of it\n", 10_000) + "(01.0) Error (criu/sk-inet.c:191): inet: Connected TCP socket, consider using --tcp-established option.\n", want: "; CRIU: (criu/sk-inet.c:191): inet: Connected TCP socket"},
		"no more than a bit":     {log: "Error (a.c:1): " + long + "\nError (a.c:2): " + long + "\n", want: "; CRIU: (a.c:1): xxx"},
		"what steers a terminal": {log: "(00.1) Error (a.c:1): file \x1b[2J\n", want: "; CRIU: (a.c:1): file \ufffd[2J"},
		"none":                   {log: "(00.1) Warn (a.c:1): Error\n", want: ""},
		"an empty one":           {log: "", want: ""},
	} {
		path := filepath.Join(t.TempDir(), "criu-dump.log")
		if err := os.WriteFile(path, []byte(c.log), 0o600); err != nil {
			t.Fatal(err)
		}
		err := answerOf(path)
		got := strings.TrimPrefix(explainDump(err).Error(), err.Error())
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" || len(got) > criuErrorLimit+len("; CRIU: ") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestALogThatIsNone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret, link := filepath.Join(dir, "secret"), filepath.Join(dir, "criu-dump.log")
	if err := errors.Join(os.WriteFile(secret, []byte("Error (a.c:1): secret\n"), 0o600), os.Symlink(secret, link)); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"a link": link, "nothing": filepath.Join(dir, "none", "criu-dump.log")} {
		err := answerOf(path)
		if got := explainDump(err); !errors.Is(got, err) || !strings.Contains(got.Error(), "cannot be read") || strings.Contains(got.Error(), "secret\n") || strings.Contains(got.Error(), "CRIU: (a.c") {
			t.Errorf("%s: %v", name, got)
		}
	}
	if err := errors.New("checkpointing container app: the kubelet answers 404"); explainDump(err) != err { //nolint:errorlint // it is the same one
		t.Error("an error that names no log was changed")
	}
}
