// Package localplane runs a Kubernetes control plane on this machine: etcd and kube-apiserver,
// and on request kube-controller-manager, kube-scheduler and kwok, which simulates kubelets.
// Everything listens on loopback with certificates of the plane's own authorities, RBAC and the
// Node authorizer are on, and several planes can run at once. The components end with the
// context, with Stop, and when this process is killed.
package localplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/process"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

const (
	// startAttempts bounds how often starting is tried with other ports.
	startAttempts = 3
	// startTimeout bounds one attempt; a busy machine takes several times the usual seconds.
	startTimeout = 3 * time.Minute
)

// Plane is a running control plane.
type Plane struct {
	options     Options
	dir         *directory
	ports       ports
	credentials *credentials
	probes      *http.Client // acts as admin
	client      kubernetes.Interface
	dynamic     dynamic.Interface
	clock       clock.WithTicker
	started     time.Time

	mu       sync.Mutex
	running  []*running // in the order they were started
	err      error      // why a component died
	stopping bool

	failed   chan struct{} // closed when a component has died
	failOnce sync.Once
	stopOnce sync.Once
	stopErr  error
	done     chan struct{} // closed when everything has ended
}

// Start starts a plane and returns when it is ready: the API server answers /readyz, and the
// scheduler, controller manager and kwok, where asked for, are healthy and the default
// ServiceAccount exists. Cancelling ctx stops the plane; wait for Done to know that it has.
func Start(ctx context.Context, options Options) (*Plane, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("checking the options: %w", err)
	}
	var last error
	for range startAttempts {
		p, err := startOnce(ctx, options)
		if err == nil {
			return p, nil
		}
		if last = err; !process.AddressInUse(err) {
			break
		}
	}
	return nil, fmt.Errorf("starting the local control plane: %w", last)
}

func startOnce(ctx context.Context, options Options) (*Plane, error) {
	p, err := prepare(ctx, options)
	if err != nil {
		return nil, err
	}
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := p.bringUp(starting); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	context.AfterFunc(ctx, func() { _ = p.Stop() }) // later callers of Stop get the error
	return p, nil
}

// prepare makes everything that is there before the first process: directory, ports, keys,
// kubeconfigs, clients.
func prepare(ctx context.Context, options Options) (*Plane, error) {
	dir, err := openDirectory(options.Dir)
	if err != nil {
		return nil, err
	}
	p := &Plane{
		options: options, dir: dir, clock: clock.RealClock{},
		failed: make(chan struct{}), done: make(chan struct{}),
	}
	p.started = p.clock.Now()
	if err := p.configure(ctx); err != nil {
		return nil, errors.Join(err, dir.close(true))
	}
	return p, nil
}

func (p *Plane) configure(ctx context.Context) error {
	var err error
	if p.ports, err = freePorts(ctx); err != nil {
		return err
	}
	if p.credentials, err = newCredentials(p.dir.files, url(p.ports.apiServer), p.started); err != nil {
		return err
	}
	if err := p.writeConfigs(); err != nil {
		return err
	}
	config := p.RESTConfig()
	if p.probes, err = rest.HTTPClientFor(config); err != nil {
		return fmt.Errorf("making the probing client: %w", err)
	}
	if p.client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("making the client: %w", err)
	}
	if p.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return fmt.Errorf("making the dynamic client: %w", err)
	}
	return nil
}

// RESTConfig returns a new configuration of a client with all rights.
func (p *Plane) RESTConfig() *rest.Config { return p.credentials.restConfig(adminUser) }

// Kubeconfig returns the path of the kubeconfig with all rights.
func (p *Plane) Kubeconfig() string { return p.dir.kubeconfig(adminUser) }

// Dir returns the plane's directory; the components' logs are in its sub-directory logs.
func (p *Plane) Dir() string { return p.dir.dir }

// Done is closed when every component has ended.
func (p *Plane) Done() <-chan struct{} { return p.done }

// Err tells which component died by itself, with the end of its log; nil as long as none has.
func (p *Plane) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// PIDs returns the process id of every running component.
func (p *Plane) PIDs() map[toolchain.Tool]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	pids := map[toolchain.Tool]int{}
	for _, proc := range p.running {
		pids[proc.tool] = proc.PID()
	}
	return pids
}

func (p *Plane) printf(format string, args ...any) {
	if p.options.Progress != nil {
		fmt.Fprintf(p.options.Progress, "control plane: "+format+"\n", args...)
	}
}

// elapsed is the time since the plane began to start.
func (p *Plane) elapsed() time.Duration {
	return p.clock.Since(p.started).Round(10 * time.Millisecond)
}
