package localplane_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// parentEnv makes this test binary start a plane in the directory it holds, print the process
// ids and wait to be killed.
const parentEnv = "LOCALPLANE_TEST_PARENT"

func TestComponentsDieWithAKilledParent(t *testing.T) {
	t.Parallel()
	encoded, err := json.Marshal(bin)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentEnv+"="+dir, "LOCALPLANE_TEST_BIN="+string(encoded))
	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("reading the process ids: %v", err)
	}
	var pids map[string]int
	if err := json.Unmarshal(line, &pids); err != nil {
		t.Fatalf("decoding %q: %v", line, err)
	}
	if len(pids) != 5 {
		t.Errorf("the parent started %v, want five components", pids)
	}
	for name, pid := range pids {
		if !alive(pid) {
			t.Errorf("%s does not run before the kill", name)
		}
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := parent.Wait(); err == nil {
		t.Error("the parent ended without the kill")
	}
	expectAllEnd(t, pids)

	// What the killed one left does not stand in the way.
	start(t, localplane.Options{Dir: dir})
}

func runParent(dir string) int {
	var paths toolchain.Paths
	if err := json.Unmarshal([]byte(os.Getenv("LOCALPLANE_TEST_BIN")), &paths); err != nil {
		fmt.Fprintln(os.Stderr, "decoding the programs:", err)
		return 1
	}
	plane, err := localplane.Start(context.Background(), localplane.Options{
		Dir: dir, Bin: paths, Scheduler: true, ControllerManager: true, Kwok: true,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := json.NewEncoder(os.Stdout).Encode(pidsOf(plane)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	<-plane.Done()
	return 1
}
