package fastpath

import (
	"errors"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/agent/governor"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// Room makes room above a container that is about to be created, and says what its runtime is to write.
func (e *Engine) Room(s table.Server) (table.First, error) {
	if err := s.Validate(); err != nil {
		return table.First{}, &InvalidError{Faults: err}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	server := e.actuatorServer(s)
	server.BudgetUs = min(e.first(s), server.HighUs)
	first, err := e.Backend.Room(server)
	if errors.Is(err, actuator.ErrNoRoom) && server.BudgetUs > s.LeastUs {
		server.BudgetUs = s.LeastUs // better a container that begins low than one that begins with nothing
		first, err = e.Backend.Room(server)
	}
	if err != nil {
		return first, &client.StatusError{Code: 409, Reason: err.Error()}
	}
	return first, nil
}

// first is the budget that a container may begin with: what its core's governor would grant it. Where the table sends it
// to no core of ours, no governor governs it.
func (e *Engine) first(s table.Server) int64 {
	c := e.cores[s.Core]
	if c == nil {
		return s.LeastUs
	}
	plan := e.table.Plan(c.id)
	var all []governor.Server
	for _, other := range e.table.Servers {
		if other.Core == c.id {
			all = append(all, e.specOf(other, plan))
		}
	}
	spec := e.specOf(s, plan)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gov.First(spec, all, plan, c.now())
}

// specOf is a server for the governor of its core.
func (e *Engine) specOf(s table.Server, plan table.Plan) governor.Server {
	if e.Backend.ReservedOnly() {
		s.Mode = table.Reserved
	}
	out := governor.Server{Server: s}
	for _, r := range plan.Raise {
		if r.ID == s.ID {
			out.RaiseToUs = r.ToUs
		}
	}
	return out
}
