package localplane_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mainspring-rt/mainspring/pkg/localplane"
)

// patience is how long a condition may take on a busy machine. Once an API server was away, the scheduler and then kwok may each wait a minute until
// they watch again (client-go's reflectors).
const patience = 5 * time.Minute

// eventually repeats check until it returns nil.
func eventually(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("waiting for %s: %v; last: %v", what, err, last)
	}
}

// start starts a plane that is stopped with the test.
func start(t *testing.T, options localplane.Options) *localplane.Plane {
	t.Helper()
	options.Bin = bin
	plane, err := localplane.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Errorf("stopping the plane: %v", err)
		}
	})
	t.Cleanup(func() { logEnds(t, plane) }) // before Stop removes the logs
	return plane
}

// logEnds prints the last lines of each component's log when the test has failed.
func logEnds(t *testing.T, plane *localplane.Plane) {
	const lines = 30
	files, err := filepath.Glob(filepath.Join(plane.Dir(), "logs", "*.log"))
	if err != nil || !t.Failed() {
		return
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Logf("reading a log: %v", err)
			continue
		}
		all := strings.Split(strings.TrimSpace(string(content)), "\n")
		t.Logf("%s ends:\n%s", filepath.Base(file), strings.Join(all[max(0, len(all)-lines):], "\n"))
	}
}

func clientFor(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func adminOf(t *testing.T, plane *localplane.Plane) kubernetes.Interface {
	t.Helper()
	return clientFor(t, plane.RESTConfig())
}

func clientFromFile(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return clientFor(t, config)
}

// alive tells whether a process runs; one that ended and waits to be reaped does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return len(rest) > 0 && rest[0] != 'Z' && rest[0] != 'X'
}

func expectAllEnd(t *testing.T, pids map[string]int) {
	t.Helper()
	eventually(t, "every component to end", func(context.Context) error {
		var left []string
		for name, pid := range pids {
			if alive(pid) {
				left = append(left, name)
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("still running: %s", strings.Join(left, ", "))
		}
		return nil
	})
}

func pidsOf(plane *localplane.Plane) map[string]int {
	pids := map[string]int{}
	for tool, pid := range plane.PIDs() {
		pids[string(tool)] = pid
	}
	return pids
}
