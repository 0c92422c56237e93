package standalone

import (
	"context"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// AwaitBudgets is awaitBudgets.
func AwaitBudgets(ctx context.Context, o Options, fast *client.Client, t table.Table) (table.Report, error) {
	return o.awaitBudgets(ctx, fast, t)
}

// ParseNote is parse; it returns the groups.
func ParseNote(data []byte) (groups []string, err error) {
	n, err := parse(data)
	for _, m := range n.Groups {
		groups = append(groups, m.Group)
	}
	return groups, err
}

// Undo is undo where the fast path of a run died before it.
func Undo(ctx context.Context, fast *client.Client, node table.Report) (table.Report, error) {
	return Options{}.undo(ctx, fast, nil, node)
}
