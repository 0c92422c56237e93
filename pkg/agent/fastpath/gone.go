package fastpath

import (
	"context"
	"errors"
	"log/slog"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
)

// lose lets go of a server whose group has gone, as groups of containers do that end. A group that was only renamed
// lives on, and no process would watch what is in force there. The engine puts back what it had, before its core makes
// it real-time once more. What the engine cannot put back stays in the journal, and the backend's sweep tries again.
func (e *Engine) lose(en *entry, why error) {
	_ = e.Programs.Untrack(en.group.ID()) // it fails when the container has ended
	fault := en.group.Close(true)
	en.group = nil
	if en.core != nil {
		en.core.lose(en.slot)
	}
	e.detach(en)
	level := slog.LevelInfo
	if errors.Is(why, actuator.ErrRenamed) || fault != nil {
		level = slog.LevelWarn
	}
	slog.Log(context.Background(), level, "a server's control group has gone; what was changed in it is put back where it lives on",
		"server", en.spec.ID, "cgroup", en.spec.Cgroup, "reason", why, "notPutBack", textOf(fault))
}

// lose says that the group of a slot has gone, so that no budget of it is in force until it has a place again.
func (c *core) lose(slot int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone[slot] = true
}
