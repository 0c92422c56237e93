package localplane

import (
	"context"
	"net"
	"strconv"

	"github.com/mainspring-rt/mainspring/pkg/process"
)

const loopback = "127.0.0.1"

// ports are the loopback ports of one plane.
type ports struct {
	etcdClient, etcdHTTP, etcdPeer, apiServer, controllerManager, scheduler, kwok int
}

// freePorts returns different loopback ports that nothing listens on. Somebody may take one
// before its component does: Start notices and tries others.
func freePorts(ctx context.Context) (ports, error) {
	free, err := process.FreePorts(ctx, 7)
	if err != nil {
		return ports{}, err
	}
	return ports{
		etcdClient: free[0], etcdHTTP: free[1], etcdPeer: free[2], apiServer: free[3],
		controllerManager: free[4], scheduler: free[5], kwok: free[6],
	}, nil
}

func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

func url(port int) string { return "https://" + address(port) }
