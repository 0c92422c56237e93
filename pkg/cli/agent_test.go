package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestAgentRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"agent"}, 2, "--standalone is not given; want a file of servers"},
		{[]string{"agent", "--standalone", "x", "--state-dir", "here"}, 2, `--state-dir "here": want an absolute path`},
		{[]string{"agent", "--standalone", "x", "--samples", "many"}, 2, `invalid argument "many" for "--samples" flag`},
		{[]string{"agent", "--standalone", "x"}, 1, "/standalone, which belongs beside cli.test: no such file or directory; build both with make build"},
	} {
		if code, _, err := run(c.args...); code != c.code || !strings.Contains(err, c.want) {
			t.Errorf("%v: exit %d, %q; want %d with %q", c.args, code, err, c.code, c.want)
		}
	}
}

// becoming makes this test binary the command agent.
const becoming = "MAINSPRING_CLI_TEST_AGENT"

func TestAgentGoesOnAsTheProgramBesideIt(t *testing.T) {
	if os.Getenv(becoming) != "" {
		code, _, err := run("agent", "--standalone", "a file", "--plain", "--duration", "90s")
		t.Fatal(code, err)
	}
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "mainspring")
	if err := os.WriteFile(filepath.Join(dir, "standalone"), []byte("#!/bin/sh\necho pid $$\nfor a; do echo \"$a\"; done\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(self)
	if err == nil {
		err = os.WriteFile(program, data, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), program, "-test.run=^"+t.Name()+"$")
	command.Env = append(os.Environ(), becoming+"=1")
	var out strings.Builder
	command.Stdout, command.Stderr = &out, &out
	err = command.Run()
	for _, want := range []string{fmt.Sprintf("pid %d\n", command.Process.Pid), "--standalone=a file\n", "--plain=true\n", "--duration=1m30s\n"} {
		if err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%v, %q; want the program beside it to get %q", err, out.String(), want)
		}
	}
}
