package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/doctor"
	"github.com/mainspring-rt/mainspring/pkg/host/hosttest"
)

func TestDoctor(t *testing.T) {
	t.Parallel()
	fine, blocked, tick := hosttest.Edge(t).Dir(), hosttest.Blocked(t).Dir(), hosttest.Lab(t).Dir()
	for _, c := range []struct {
		args []string
		code int
		out  string
		err  string
	}{
		{[]string{"--root", fine}, 0, "0 problems", ""},
		{[]string{"--root", blocked}, 1, "backend deadline", ""},
		{[]string{"--root", fine, "--cores", "4-7"}, 0, "real-time cores 4-7", ""},
		{[]string{"--root", fine, "--cores", "99"}, 2, "", "--cores names core 99"},
		{[]string{"--root", t.TempDir()}, 2, "", "no such file or directory"},
		{[]string{"--root", fine, "--cores", "four"}, 2, "", "is no CPU"},
		{[]string{"--root", tick}, 0, "places no real-time pod on it", ""},
		{[]string{"--root", tick, "--rt-budget-granularity", "100us"}, 1, "settings.realtime.budgetGranularity=5ms", ""},
		{[]string{"--root", tick, "--rt-budget-granularity", "5ms"}, 0, "the controller charges 5ms", ""},
		{[]string{"--rt-budget-granularity", "-1ms"}, 2, "", "at least 0"},
		{[]string{"-o", "yaml"}, 2, "", `--output is "yaml"; want text or json`},
		{[]string{"me"}, 2, "", `mainspring doctor takes no argument, but got "me"`},
	} {
		code, out, err := run(append([]string{"doctor", "--programs=false"}, c.args...)...)
		if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(err, c.err) || (c.err == "" && err != "") {
			t.Errorf("%v: exit %d\n%s\n%s", c.args, code, out, err)
		}
	}
}

func TestDoctorInJSON(t *testing.T) {
	t.Parallel()
	code, out, _ := run("doctor", "--programs=false", "--root", hosttest.Blocked(t).Dir(), "-o", "json")
	var report doctor.Report
	if err := json.Unmarshal([]byte(out), &report); code != 1 || err != nil || report.Backend != "deadline" || len(report.Findings) != len(doctor.Names()) {
		t.Errorf("exit %d, %v, %+v", code, err, report)
	}
}

// On the machine that the test runs on: whatever it lacks, there is a report.
func TestDoctorHere(t *testing.T) {
	t.Parallel()
	code, out, err := run("doctor", "-o", "json")
	var report doctor.Report
	if jsonErr := json.Unmarshal([]byte(out), &report); jsonErr != nil || code > 1 || err != "" {
		t.Fatalf("exit %d, %v, %s", code, jsonErr, err)
	}
	if (code == 1) != report.Problems() || report.Kernel == "" {
		t.Errorf("exit %d, %+v", code, report)
	}
}
