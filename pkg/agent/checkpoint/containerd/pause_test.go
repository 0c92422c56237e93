package containerd

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"k8s.io/utils/clock"
)

// reluctant is a runtime that fails to pause a container some times.
type reluctant struct {
	tasks.UnimplementedTasksServer
	fails, asked int
	code         codes.Code
}

func (r *reluctant) Get(context.Context, *tasks.GetRequest) (*tasks.GetResponse, error) {
	return &tasks.GetResponse{Process: &task.Process{Status: task.Status_RUNNING}}, nil
}

func (r *reluctant) Pause(context.Context, *tasks.PauseTaskRequest) (*emptypb.Empty, error) {
	if r.asked++; r.asked <= r.fails {
		return nil, status.Error(r.code, "OCI runtime pause failed: unable to freeze")
	}
	return &emptypb.Empty{}, nil
}

// A control group that does not freeze at once is frozen at the next attempt.
func TestAPauseIsTriedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		fails, asked int
		code         codes.Code
		paused       bool
	}{
		"at once":                     {0, 1, codes.OK, true},
		"at the third attempt":        {2, 3, codes.Unknown, true},
		"never":                       {9, pauseAttempts, codes.Unknown, false},
		"a container that is no more": {9, 1, codes.NotFound, false},
	} {
		socket := filepath.Join(t.TempDir(), "s")
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		runtime, server := &reluctant{fails: c.fails, code: c.code}, grpc.NewServer()
		tasks.RegisterTasksServer(server, runtime)
		go server.Serve(listener) //nolint:errcheck // it ends with the test
		client, err := New(socket, "overlayfs", clock.RealClock{})
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Pause(t.Context(), "c1"); (err == nil) != c.paused || runtime.asked != c.asked {
			t.Errorf("%s: %v after %d attempts, want %d", name, err, runtime.asked, c.asked)
		}
		server.Stop()
	}
}
