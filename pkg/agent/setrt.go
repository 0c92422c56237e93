package agent

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/frontdoor"
	"github.com/mainspring-rt/mainspring/pkg/host"
)

// SetReply is the answer of POST /set-rt.
type SetReply struct {
	// Server that was set, podUID/container, and its name for people.
	Server string `json:"server"`
	Label  string `json:"label"`
	// PeriodUs, Core, and RuntimeUs that is in force at least: a higher budget that the container was given for an
	// overrun goes back to it when its dwell is over.
	PeriodUs  int64 `json:"period"`
	RuntimeUs int64 `json:"runtime"`
	Core      int   `json:"core"`
}

// Allow says what a request of POST /set-rt comes to: a budget, for a server of the table, which the RTNode's
// spec admits. The error is a frontdoor.Problem. It depends on nothing but its arguments.
func Allow(t table.Table, r frontdoor.SetRT) (client.SetRequest, SetReply, error) {
	none := func(err error) (client.SetRequest, SetReply, error) { return client.SetRequest{}, SetReply{}, err }
	s, ok := holding(t, r.ContainerID)
	if !ok {
		return none(frontdoor.NotFound("container_id %s is no real-time container of this node", r.ContainerID.ID))
	}
	if r.PeriodUs != s.PeriodUs {
		return none(frontdoor.NotAllowed("period is %d; the container %s was admitted with %d microseconds", r.PeriodUs, s.Label, s.PeriodUs))
	}
	if r.RuntimeUs < s.LowUs || r.RuntimeUs > s.HighUs {
		return none(frontdoor.NotAllowed("runtime is %d; the container %s was admitted with %d to %d microseconds", r.RuntimeUs, s.Label, s.LowUs, s.HighUs))
	}
	if limit := raisable(t, s); r.RuntimeUs > limit {
		return none(frontdoor.NotAllowed("runtime is %d; the plan of core %d lets the container %s have at most %d microseconds", r.RuntimeUs, s.Core, s.Label, limit))
	}
	if err := sameCore(r.Core, s); err != nil {
		return none(err)
	}
	request := client.SetRequest{Server: s.ID, PeriodUs: s.PeriodUs, RuntimeUs: r.RuntimeUs, Core: &s.Core}
	return request, SetReply{Server: s.ID, Label: s.Label, PeriodUs: s.PeriodUs, RuntimeUs: r.RuntimeUs, Core: s.Core}, nil
}

// holding is the server whose container has exactly this ID. The table has the API's name of it, with the
// runtime, or the runtime's own, without.
func holding(t table.Table, id frontdoor.ContainerID) (table.Server, bool) {
	for _, s := range t.Servers {
		if id.Is(s.ContainerID) || id.ID != "" && s.ContainerID == id.ID {
			return s, true
		}
	}
	return table.Server{}, false
}

// raisable is the highest budget that the plan lets a server have without asking.
func raisable(t table.Table, s table.Server) int64 {
	limit := max(s.LowUs, s.LeastUs)
	for _, r := range t.Plan(s.Core).Raise {
		if r.ID == s.ID {
			limit = max(limit, r.ToUs)
		}
	}
	return limit
}

func sameCore(list string, s table.Server) error {
	if strings.TrimSpace(list) == "" {
		return nil
	}
	cores, err := host.ParseCPUList(list)
	if err != nil {
		return frontdoor.BadRequest("core %q; want the kernel's list format, for example \"2\"", list)
	}
	if len(cores) != 1 || cores[0] != s.Core {
		return frontdoor.NotAllowed("core is %q; the container %s was admitted on core %d alone", list, s.Label, s.Core)
	}
	return nil
}

// setRT serves POST /set-rt: what is allowed goes to the fast path, the only writer of budgets.
type setRT struct {
	applied func() *Applied
	fast    FastPath
}

func (h setRT) set(ctx context.Context, r frontdoor.SetRT) (SetReply, error) {
	a := h.applied()
	if a == nil || a.Err != nil {
		return SetReply{}, frontdoor.Unavailable("the node's table has not been applied yet")
	}
	request, reply, err := Allow(a.Table, r)
	if err != nil {
		return SetReply{}, err
	}
	return reply, problemOf(h.fast.Set(ctx, request))
}

// problemOf passes the fast path's refusals on.
func problemOf(err error) error {
	status := (*client.StatusError)(nil)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, client.ErrUnreachable):
		return frontdoor.Unavailable("the fast path does not answer; budgets stay as they are")
	case errors.As(err, &status) && status.Code == http.StatusNotFound:
		return frontdoor.NotFound("%s", status.Reason)
	case errors.As(err, &status) && status.Code < http.StatusInternalServerError:
		return frontdoor.NotAllowed("%s", status.Reason)
	}
	return err
}
