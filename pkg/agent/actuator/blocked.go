package actuator

import (
	"errors"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// blocked is the backend of a machine on which no other works. It can put back what another once changed.
type blocked struct {
	plain
	reason error
}

func newBlocked(m *machine, findings []Finding) *blocked {
	var why []string
	for _, f := range findings {
		why = append(why, f.String())
	}
	reason := errors.New("no budget can be enforced on this machine: " + strings.Join(why, "; "))
	return &blocked{newPlain(m, traits{
		name: Blocked, guarantee: "none", source: SourceOwn, identity: IdentityCPU, policy: PolicyFixed,
	}), reason}
}

// Capacity is none.
func (b *blocked) Capacity(cores []int) map[int]int64 {
	out := make(map[int]int64, len(cores))
	for _, core := range cores {
		out[core] = 0
	}
	return out
}

// Room is refused.
func (b *blocked) Room(Server) (table.First, error) { return table.First{}, b.reason }

// Open is refused.
func (b *blocked) Open(Server) (Group, error) { return nil, b.reason }
