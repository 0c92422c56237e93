package usage

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mainspring-rt/mainspring/pkg/influx"
)

// Influx asks InfluxDB 2.x in Flux. Each query gives, for each node, one row with columns node and value (or _value), a
// ratio, and _time where it keeps that; without it the range in the query says how old a reading can be.
type Influx struct {
	Client                *influx.Client
	CPUQuery, MemoryQuery string
	Now                   func() time.Time
}

// Name implements Source.
func (i *Influx) Name() string { return SourceInflux }

// Nodes implements Source.
func (i *Influx) Nodes(ctx context.Context, nodes []*corev1.Node) (map[string]Usage, error) {
	cpu, err := i.ask(ctx, i.CPUQuery)
	if err != nil {
		return nil, err
	}
	memory, err := i.ask(ctx, i.MemoryQuery)
	if err != nil {
		return nil, err
	}
	return byNode(i.Name(), nodes, cpu, memory)
}

func (i *Influx) ask(ctx context.Context, query string) ([]labelled, error) {
	rows, err := i.Client.Query(ctx, query)
	var status *influx.StatusError
	var answer *influx.AnswerError
	switch {
	case errors.As(err, &status):
		return nil, &Error{Source: i.Name(), Kind: kindOfStatus(status.Code), Err: err}
	case errors.As(err, &answer):
		return nil, bad(i.Name(), "%w", err)
	case err != nil:
		return nil, named(i.Name(), err)
	}
	now, out := i.Now(), make([]labelled, 0, len(rows))
	for number, row := range rows {
		l, err := readRow(row, now)
		if err != nil {
			return nil, bad(i.Name(), "row %d: %w", number+1, err)
		}
		out = append(out, l)
	}
	return out, nil
}

func readRow(row map[string]string, now time.Time) (labelled, error) {
	text, ok := row["value"]
	if !ok {
		text, ok = row["_value"]
	}
	if row["node"] == "" || !ok {
		return labelled{}, errors.New("want columns node and value")
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return labelled{}, fmt.Errorf("value: %w", err)
	}
	at := now
	if text := row["_time"]; text != "" {
		if at, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return labelled{}, fmt.Errorf("_time: %w", err)
		}
	}
	return labelled{node: row["node"], value: Value{Ratio: value, At: at}}, nil
}
