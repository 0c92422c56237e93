package influx

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
)

// mostRows of an answer.
const mostRows = 100_000

// Query asks in Flux (InfluxDB 2.x), and gives the rows of all tables of the answer, by column. Errors are *StatusError when
// InfluxDB refuses, *AnswerError when its answer cannot be understood.
func (c *Client) Query(ctx context.Context, flux string) ([]map[string]string, error) {
	body, err := json.Marshal(map[string]any{
		"query": flux, "type": "flux", "dialect": map[string]any{"header": true, "delimiter": ",", "annotations": []string{"datatype"}},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding a question: %w", err)
	}
	reply, err := c.send(ctx, "/api/v2/query?org="+url.QueryEscape(c.Org), "application/json", string(body))
	if err != nil {
		return nil, err
	}
	defer reply.Close()
	text := &io.LimitedReader{R: reply, N: mostAnswer + 1}
	rows, err := parse(text)
	if text.N == 0 {
		err = fmt.Errorf("is longer than %d bytes", mostAnswer)
	}
	if err != nil {
		return nil, &AnswerError{err}
	}
	return rows, nil
}

// parse reads annotated CSV: tables after one another, each with annotations (#...), a header and rows. An error is a table
// with columns error and reference.
func parse(text io.Reader) ([]map[string]string, error) {
	reader := csv.NewReader(text)
	reader.FieldsPerRecord = -1
	var out []map[string]string
	var header []string
	annotated := false
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("is no CSV: %w", err)
		}
		switch {
		case strings.HasPrefix(record[0], "#"): // annotations come before the header of each table
			annotated = true
		case header == nil || annotated || restarts(record, header):
			header, annotated = record, false
		case len(record) != len(header):
			return nil, fmt.Errorf("has a row of %d columns in a table of %d", len(record), len(header))
		case len(out) == mostRows:
			return nil, fmt.Errorf("has more than %d rows", mostRows)
		default:
			row := map[string]string{}
			for i, name := range header {
				row[name] = record[i]
			}
			if words, failed := row["error"]; failed && words != "" {
				return nil, errors.New("says: " + clean(words))
			}
			out = append(out, row)
		}
	}
}

// restarts tells whether a row is the header of a further table, where there are no annotations.
func restarts(record, header []string) bool {
	if len(record) != len(header) {
		return len(record) > 1 && record[1] == "result"
	}
	for i := range record {
		if record[i] != header[i] {
			return false
		}
	}
	return true
}
