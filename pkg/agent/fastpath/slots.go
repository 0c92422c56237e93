package fastpath

import (
	"fmt"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// slots gives servers their places in the memory shared with the programs. A slot's generation changes with
// every holder, so that events of a former one are void.
type slots struct {
	used       [table.MaxServers]bool
	generation [table.MaxServers]uint32
}

// take returns a free slot and its new generation, which is never 0.
func (s *slots) take() (slot int, generation uint32, err error) {
	for i, used := range s.used {
		if used {
			continue
		}
		s.used[i] = true
		return i, s.renew(i), nil
	}
	return 0, 0, fmt.Errorf("all %d slots are in use", len(s.used))
}

// renew voids the events that are under way.
func (s *slots) renew(slot int) uint32 {
	s.generation[slot]++
	if s.generation[slot] == 0 {
		s.generation[slot] = 1
	}
	return s.generation[slot]
}

func (s *slots) free(slot int) { s.used[slot] = false }
