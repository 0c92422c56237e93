package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/mainspring-rt/mainspring/test/bench/report"
	"github.com/mainspring-rt/mainspring/test/bench/stats"
)

// checkpointTimeout bounds the round, starting two nodes included.
const checkpointTimeout = 15 * time.Minute

// checkpoint moves pods with their memory between two real nodes of this machine: kubelet, containerd, CRIU. The suite of real nodes
// starts them, and measures.
func checkpoint(ctx context.Context) ([]report.Figure, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("real nodes need root; --checkpoint=false leaves them out")
	}
	fmt.Fprintln(os.Stderr, "round checkpoint")
	ctx, cancel := context.WithTimeout(ctx, checkpointTimeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "mainspring-bench-migration-")
	if err != nil {
		return nil, fmt.Errorf("making a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "checkpoints.json")
	suite := exec.CommandContext(ctx, "go", "run", "github.com/onsi/ginkgo/v2/ginkgo", "--no-color", "--focus=Moving pods with their memory", "./test/suites/node")
	suite.Env = append(os.Environ(), "MAINSPRING_MEASURE_CHECKPOINTS="+file)
	suite.Stdout, suite.Stderr = os.Stderr, os.Stderr
	suite.Cancel = func() error { return suite.Process.Signal(os.Interrupt) } // the suite ends its nodes then
	suite.WaitDelay = time.Minute
	if err := suite.Run(); err != nil {
		return nil, fmt.Errorf("measuring on real nodes: %w", err)
	}
	return checkpointFigures(file)
}

// checkpointFigures reads what the suite has measured.
func checkpointFigures(file string) ([]report.Figure, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading what was measured: %w", err)
	}
	var taken struct{ Unavailable, EndToEnd []float64 }
	if err := json.Unmarshal(raw, &taken); err != nil {
		return nil, fmt.Errorf("reading what was measured: %w", err)
	}
	if len(taken.Unavailable) == 0 || len(taken.Unavailable) != len(taken.EndToEnd) {
		return nil, fmt.Errorf("reading what was measured: %d and %d figures; want as many of each, at least one", len(taken.Unavailable), len(taken.EndToEnd))
	}
	away, whole := stats.Of(taken.Unavailable), stats.Of(taken.EndToEnd)
	return []report.Figure{
		{Key: "unavailable_p50_s_checkpoint", Value: away.Quantile(0.5), Note: fmt.Sprintf("real nodes, one pod after the other, n %d: from the last answer of the source to the first of the copy", len(away))},
		{Key: "unavailable_max_s_checkpoint", Value: away.Max()},
		{Key: "end_to_end_p50_s_checkpoint", Value: whole.Quantile(0.5), Note: "from the creation of the PodMigration until it is over"},
		{Key: "end_to_end_max_s_checkpoint", Value: whole.Max()},
	}, nil
}
