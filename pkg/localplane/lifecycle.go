package localplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/process"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

const (
	// probeEvery is the pause between two questions whether a component is ready. Each makes the API server run all of its checks while it starts.
	probeEvery   = 250 * time.Millisecond
	probeTimeout = 5 * time.Second
	// stopGrace is how long a component may take to end before it is killed.
	stopGrace = 10 * time.Second
)

// ErrAPIServerRunning and ErrAPIServerStopped tell that StartAPIServer or StopAPIServer has
// nothing to do; ErrStopped that the plane has been stopped.
var (
	ErrStopped          = errors.New("the plane is stopped")
	ErrAPIServerRunning = errors.New("the API server is running")
	ErrAPIServerStopped = errors.New("the API server is not running")
)

// bringUp starts the components and waits until each is ready. The API server waits for etcd by
// itself.
func (p *Plane) bringUp(ctx context.Context) error {
	server := p.apiServer()
	for _, c := range []component{etcdComponent(p.dir.files, p.ports), server} {
		if err := p.launch(c); err != nil {
			return err
		}
	}
	if err := p.waitReady(ctx, server); err != nil {
		return err
	}
	if err := p.grantKwok(ctx); err != nil {
		return err
	}
	if err := p.launchAll(ctx, p.clients()); err != nil {
		return err
	}
	if p.options.ControllerManager {
		return p.waitDefaultServiceAccount(ctx)
	}
	return nil
}

// launchAll starts components and waits until all are ready.
func (p *Plane) launchAll(ctx context.Context, all []component) error {
	for _, c := range all {
		if err := p.launch(c); err != nil {
			return err
		}
	}
	for _, c := range all {
		if err := p.waitReady(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// clients are the components that talk to the API server.
func (p *Plane) clients() []component {
	var all []component
	if p.options.ControllerManager {
		all = append(all, controllerManagerComponent(p.dir.files, p.ports, p.options.NodeMonitorGracePeriod, p.options.ControllerManagerArgs))
	}
	if p.options.Scheduler {
		all = append(all, schedulerComponent(p.dir.files, p.ports))
	}
	if p.options.Kwok {
		all = append(all, kwokComponent(p.dir.files, p.ports, p.options.NodeMonitorGracePeriod))
	}
	return all
}

func (p *Plane) apiServer() component {
	return apiServerComponent(p.dir.files, p.ports, p.options.APIServerArgs)
}

// writeConfigs writes kubeconfigs and the components' configuration files.
func (p *Plane) writeConfigs() error {
	for _, user := range []string{adminUser, controllerManagerUser, schedulerUser, kwokUser} {
		if err := p.credentials.writeUser(p.dir.kubeconfig(user), user); err != nil {
			return err
		}
	}
	kwok, err := kwokConfig()
	if err != nil {
		return err
	}
	for name, content := range map[string]string{
		"kwok.yaml":      kwok,
		"scheduler.yaml": schedulerConfig(p.dir.kubeconfig(schedulerUser)),
	} {
		if err := os.WriteFile(p.dir.config(name), []byte(content), 0o600); err != nil {
			return fmt.Errorf("writing a component's configuration: %w", err)
		}
	}
	return nil
}

// launch starts a component and watches it. Nothing is started once the plane stops.
func (p *Plane) launch(c component) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return cmp.Or(p.err, ErrStopped)
	}
	child, err := process.Start(process.Command{
		Name: string(c.tool), Path: p.options.Bin[c.tool], Args: c.args, Log: p.dir.log(string(c.tool)),
	})
	if err != nil {
		return err
	}
	proc := &running{Process: child, tool: c.tool}
	p.running = append(p.running, proc)
	go p.watch(proc)
	return nil
}

// running is a component that has been started.
type running struct {
	*process.Process
	tool     toolchain.Tool
	stopping atomic.Bool // its end is wanted
}

// stop asks the component to end, and kills it when it has not after the grace period; that its end
// was not graceful is of no interest.
func (r *running) stop(grace time.Duration) {
	r.stopping.Store(true)
	_ = r.Stop(grace)
}

// watch ends with the process. One that ends by itself takes the plane down.
func (p *Plane) watch(proc *running) {
	<-proc.Exited()
	p.mu.Lock()
	p.running = slices.DeleteFunc(p.running, func(other *running) bool { return other == proc })
	p.mu.Unlock()
	if proc.stopping.Load() {
		return
	}
	p.failOnce.Do(func() {
		p.mu.Lock()
		p.err = proc.Died()
		p.mu.Unlock()
		close(p.failed)
	})
	_ = p.Stop() // later callers of Stop get the error
}

// waitReady polls the component's ready URL until it answers 200.
func (p *Plane) waitReady(ctx context.Context, c component) error {
	err := p.poll(ctx, func(ctx context.Context) error { return p.probe(ctx, c.ready) })
	if err != nil {
		return fmt.Errorf("waiting for %s (log %s): %w", c.tool, p.dir.log(string(c.tool)), err)
	}
	p.printf("%s ready after %s", c.tool, p.elapsed())
	return nil
}

func (p *Plane) probe(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("making a probe: %w", err)
	}
	response, err := p.probes.Do(request)
	if err != nil {
		return fmt.Errorf("probing: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("probing %s: %s", url, response.Status)
	}
	return nil
}

// waitDefaultServiceAccount waits for the ServiceAccount without which no pod is admitted to
// the default namespace.
func (p *Plane) waitDefaultServiceAccount(ctx context.Context) error {
	err := p.poll(ctx, func(ctx context.Context) error {
		_, err := p.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("waiting for the default ServiceAccount: %w", err)
		}
		return err
	})
	if err != nil {
		return err
	}
	p.printf("default ServiceAccount there after %s", p.elapsed())
	return nil
}

// poll calls try until it succeeds, the context ends or a component dies.
func (p *Plane) poll(ctx context.Context, try func(context.Context) error) error {
	ticker := p.clock.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		attempt, cancel := context.WithTimeout(ctx, probeTimeout)
		err := try(attempt)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-p.failed:
			return p.Err()
		case <-p.done:
			return cmp.Or(p.Err(), ErrStopped)
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-ticker.C():
		}
	}
}

// StopAPIServer stops the API server and leaves everything else running, or returns
// ErrAPIServerStopped.
func (p *Plane) StopAPIServer(context.Context) error {
	proc := p.find(toolchain.KubeAPIServer)
	if proc == nil {
		return ErrAPIServerStopped
	}
	proc.stop(stopGrace)
	return nil
}

// StartAPIServer starts the API server again, on the same port with the same data, and then kube-controller-manager and
// kube-scheduler anew. It waits until all are ready, or returns ErrAPIServerRunning. In a user's cluster both end in an outage that
// outlasts their leases, and are started again. Without a lease they would go on, and not look at some kinds of objects for a
// minute, as client-go waits longer after each failure.
func (p *Plane) StartAPIServer(ctx context.Context) error {
	if p.find(toolchain.KubeAPIServer) != nil {
		return ErrAPIServerRunning
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	server := p.apiServer()
	if err := p.launch(server); err != nil {
		return err
	}
	if err := p.waitReady(ctx, server); err != nil {
		return err
	}
	var leaders []component
	for _, c := range p.clients() {
		if c.tool != toolchain.Kwok {
			leaders = append(leaders, c)
		}
	}
	p.stopAll(toolchain.KubeScheduler, toolchain.KubeControllerManager)
	return p.launchAll(ctx, leaders)
}

func (p *Plane) find(tool toolchain.Tool) *running {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, proc := range p.running {
		if proc.tool == tool && proc.Running() {
			return proc
		}
	}
	return nil
}

// Stop ends every component: first those that talk to the API server, then the API server, then
// etcd; a component that does not end in time is killed. It removes a temporary Dir, unless a
// component died and its log is of interest. Calling it again waits for the first call and
// returns its error.
func (p *Plane) Stop() error {
	p.stopOnce.Do(func() {
		defer close(p.done)
		p.mu.Lock()
		p.stopping = true
		p.mu.Unlock()
		p.stopAll(toolchain.Kwok, toolchain.KubeScheduler, toolchain.KubeControllerManager)
		p.stopAll(toolchain.KubeAPIServer)
		p.stopAll(toolchain.Etcd)
		p.stopErr = p.dir.close(p.Err() == nil)
	})
	<-p.done
	return p.stopErr
}

// stopAll stops the tools that run, at once.
func (p *Plane) stopAll(tools ...toolchain.Tool) {
	var stops sync.WaitGroup
	for _, tool := range tools {
		if proc := p.find(tool); proc != nil {
			stops.Go(func() { proc.stop(stopGrace) })
		}
	}
	stops.Wait()
}
