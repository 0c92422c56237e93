package localplane

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

const (
	loopback = "127.0.0.1"
	// Ports are chosen below Linux' ephemeral range: a client that retries an ephemeral port
	// while its server is down may end up connected to itself and keep the port from the server.
	lowestPort  = 20000
	highestPort = 32000
	portTries   = 200
)

// ports are the loopback ports of one plane.
type ports struct {
	etcdClient, etcdPeer, apiServer, controllerManager, scheduler, kwok int
}

// freePorts returns different loopback ports that nothing listens on. Somebody may take one
// before its component does: Start notices and tries others.
func freePorts(ctx context.Context) (ports, error) {
	var p ports
	taken := map[int]bool{}
	for _, port := range []*int{&p.etcdClient, &p.etcdPeer, &p.apiServer, &p.controllerManager, &p.scheduler, &p.kwok} {
		free, err := freePort(ctx, taken)
		if err != nil {
			return ports{}, err
		}
		taken[free] = true
		*port = free
	}
	return p, nil
}

func freePort(ctx context.Context, taken map[int]bool) (int, error) {
	var last error
	var listen net.ListenConfig
	for range portTries {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		if taken[port] {
			continue
		}
		listener, err := listen.Listen(ctx, "tcp", address(port))
		if err != nil {
			last = err
			continue
		}
		if err := listener.Close(); err != nil {
			return 0, fmt.Errorf("releasing port %d: %w", port, err)
		}
		return port, nil
	}
	return 0, fmt.Errorf("finding a free port on %s between %d and %d: %w", loopback, lowestPort, highestPort, last)
}

func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

func url(port int) string { return "https://" + address(port) }
