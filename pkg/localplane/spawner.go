package localplane

import (
	"os/exec"
	"runtime"
	"syscall"
)

// spawner starts processes that die with this one, even when it is killed with SIGKILL. Linux
// sends the parent-death signal when the thread that forked ends, not the process, so one
// thread does all the forking and lives until the spawner is closed.
type spawner struct {
	requests chan spawnRequest
}

type spawnRequest struct {
	cmd     *exec.Cmd
	started chan<- error
}

func newSpawner() *spawner {
	s := &spawner{requests: make(chan spawnRequest)}
	go s.run()
	return s
}

// run owns its thread. It never unlocks it: the thread ends with the goroutine.
func (s *spawner) run() {
	runtime.LockOSThread()
	for r := range s.requests {
		r.started <- r.cmd.Start()
	}
}

// start starts cmd in a process group of its own, so that a terminal's Ctrl-C reaches only us
// and the components are stopped in order.
func (s *spawner) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	s.requests <- spawnRequest{cmd, started}
	return <-started
}

// close ends the thread; what it started and is still running gets killed.
func (s *spawner) close() { close(s.requests) }
