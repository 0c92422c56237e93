package localnode

import (
	"context"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// TempPattern names the directories of nodes.
const TempPattern = tempPattern

// ShimSockets is where shims listen.
const ShimSockets = shimSockets

// Abandon makes what a killed process of a node leaves in its directory, and returns what was noted.
func Abandon(ctx context.Context, dir string) (group, address string, err error) {
	m := machine{host.New("/")}
	r, err := m.survey(dir)
	if err != nil {
		return "", "", err
	}
	if err := r.save(dir); err != nil {
		return "", "", err
	}
	if err := addAddress(ctx, r.Address); err != nil {
		return "", "", err
	}
	return r.Group, r.Address, m.makeGroup(r.Group)
}

// RemoveAbandoned is what the next start does.
func RemoveAbandoned(ctx context.Context) error {
	return machine{host.New("/")}.removeAbandoned(ctx)
}

// LockPath is the lock of a node's directory, LockFile takes it.
var (
	LockPath = lockPath
	LockFile = lockFile
	// StateDir is containerd's in the directory of a node.
	StateDir = stateDir
)
