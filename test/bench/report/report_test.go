package report_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/test/bench/report"
)

func TestWriteEndsWithOneJSONObjectAndWritesTheSameToTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "bench.json")
	var out bytes.Buffer
	figures := []report.Figure{{Key: "a_s", Value: 1.5, Goal: "< 2", Note: "measured"}, {Key: "b_mb", Value: 3}, {Key: "list", Data: []int{1, 2}}}
	environment := report.ReadEnvironment()
	if err := report.Write(&out, path, environment, figures); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
	if !strings.Contains(lines[0], environment.Kernel) || !strings.Contains(lines[0], environment.CPU) {
		t.Errorf("the first line is %q; want the environment, %+v", lines[0], environment)
	}
	if !strings.HasPrefix(lines[2], "a_s") || !strings.Contains(lines[2], "< 2") {
		t.Errorf("the table's first row is %q", lines[2])
	}
	if strings.Contains(strings.Join(lines[:len(lines)-1], "\n"), "list") {
		t.Errorf("data is in the table: %q", lines)
	}
	last := lines[len(lines)-1]
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(file) != last+"\n" {
		t.Errorf("the file holds %s, the last line is %s", file, last)
	}
	var object struct {
		A           float64            `json:"a_s"`
		B           float64            `json:"b_mb"`
		List        []int              `json:"list"`
		Environment report.Environment `json:"environment"`
	}
	if err := json.Unmarshal(file, &object); err != nil {
		t.Fatal(err)
	}
	if object.A != 1.5 || object.B != 3 || len(object.List) != 2 {
		t.Errorf("figures are %+v", object)
	}
	if e := object.Environment; e.CPUs < 1 || e.Kernel == "" || e.MemoryGiB <= 0 || e.Go == "" {
		t.Errorf("environment is %+v", e)
	}
}
