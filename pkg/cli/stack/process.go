package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/cli/text"
)

const (
	// readyTimeout bounds how long the controller may take until it is ready.
	readyTimeout = 2 * time.Minute
	// readyEvery is the pause between two questions whether it is.
	readyEvery = 100 * time.Millisecond
	// stopTimeout bounds how long it may take to end after SIGTERM.
	stopTimeout = 20 * time.Second
	// toldLines is how many lines of its log are told when it dies.
	toldLines = 8
)

// process is a child that dies with this process, even when that is killed.
type process struct {
	cmd    *exec.Cmd
	log    string
	clock  clock.WithTicker
	exited chan struct{} // closed once it has ended and err is set
	err    error
}

// startProcess starts a program in a process group of its own, so that a terminal's Ctrl-C reaches only this process and
// the child is stopped in order; nor does the end of the context end it. Its output goes to the file log.
func startProcess(ctx context.Context, binary string, args []string, log string, clk clock.WithTicker) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the controller's log: %w", err)
	}
	defer out.Close()
	p := &process{cmd: exec.CommandContext(context.WithoutCancel(ctx), binary, args...), log: log, clock: clk, exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() {
		// Linux sends the parent-death signal when the thread that forked ends, so this one stays with the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting the controller: %w", err)
	}
	return p, nil
}

// waitReady asks a URL until it answers 200.
func (p *process) waitReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	ticker := p.clock.NewTicker(readyEvery)
	defer ticker.Stop()
	for {
		if answers(ctx, url) {
			return nil
		}
		select {
		case <-p.exited:
			return p.died()
		case <-ctx.Done():
			return fmt.Errorf("waiting for the controller to be ready: %w; its log is %s", context.Cause(ctx), p.log)
		case <-ticker.C():
		}
	}
}

func answers(ctx context.Context, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// died tells how a process that was not stopped ended.
func (p *process) died() error {
	log, err := os.ReadFile(p.log)
	if err != nil {
		log = []byte(err.Error())
	}
	how := "ended by itself"
	if p.err != nil {
		how = "ended: " + p.err.Error()
	}
	return fmt.Errorf("the controller %s; the last lines of its log:\n%s", how, text.LastLines(string(log), toldLines))
}

// stop asks the process to end, and kills it when it does not.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	timer := p.clock.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.exited:
		return nil
	case <-timer.C():
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing the controller: %w", err)
	}
	<-p.exited
	return fmt.Errorf("the controller did not end within %s of SIGTERM and was killed", stopTimeout)
}

// freePorts finds loopback ports that nobody listens on.
func freePorts(ctx context.Context, n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range n {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		defer listener.Close() // only after all are found, so that they differ
		address, ok := listener.Addr().(*net.TCPAddr)
		if !ok {
			return nil, fmt.Errorf("finding a free port: %s is not a TCP address", listener.Addr())
		}
		ports = append(ports, address.Port)
	}
	return ports, nil
}
