package process

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"golang.org/x/sys/unix"
)

const (
	loopback = "127.0.0.1"
	// Ports are chosen below Linux' ephemeral range: a client that retries an ephemeral port
	// while its server is down may end up connected to itself and keep the port from the server.
	lowestPort  = 20000
	highestPort = 32000
	portTries   = 200
)

// FreePorts returns n different loopback ports that nothing listens on, and that FreePorts gives nobody else, in any process, as long as
// this one lives. Who listens with SO_REUSEADDR, as Go's servers do, can have one, as often as it likes. A stranger
// may take one before: AddressInUse tells that this happened.
func FreePorts(ctx context.Context, n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range n {
		port, err := freePort(ctx)
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	return ports, nil
}

func freePort(ctx context.Context) (int, error) {
	var last error
	for range portTries {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		if last = reserve(port); last == nil {
			return port, nil
		}
		if !errors.Is(last, unix.EADDRINUSE) {
			break
		}
	}
	return 0, fmt.Errorf("finding a free port on %s between %d and %d: %w", loopback, lowestPort, highestPort, last)
}

// reserve binds a socket to the port for as long as the process lives, and never listens on it. It is bound without SO_REUSEADDR, so
// that it cannot be where any other socket is, and has it afterwards, so that a server that has it too can be beside it (socket(7)).
func reserve(port int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err = unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: netip.MustParseAddr(loopback).As4()}); err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	return nil
}
