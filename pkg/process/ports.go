package process

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

// FreePorts returns n different loopback ports that nothing listens on. Somebody may take one before
// its user does: AddressInUse tells that this happened.
func FreePorts(ctx context.Context, n int) ([]int, error) {
	taken := make(map[int]bool, n)
	ports := make([]int, 0, n)
	for range n {
		port, err := freePort(ctx, taken)
		if err != nil {
			return nil, err
		}
		taken[port] = true
		ports = append(ports, port)
	}
	return ports, nil
}

func freePort(ctx context.Context, taken map[int]bool) (int, error) {
	var last error
	var listen net.ListenConfig
	for range portTries {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		if taken[port] {
			continue
		}
		listener, err := listen.Listen(ctx, "tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
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
