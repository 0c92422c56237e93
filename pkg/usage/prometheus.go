package usage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// DefaultCPUQuery is of node_exporter.
	DefaultCPUQuery = `1 - avg by (node, instance) (rate(node_cpu_seconds_total{mode="idle"}[$age]))`
	// DefaultMemoryQuery is of node_exporter, too.
	DefaultMemoryQuery = `1 - avg by (node, instance) (last_over_time(node_memory_MemAvailable_bytes[$age]) / last_over_time(node_memory_MemTotal_bytes[$age]))`

	// ageVariable stands, in a query, for the age that samples may have.
	ageVariable = "$age"

	// mostBytes of an answer.
	mostBytes = 16 << 20
)

// Prometheus asks the HTTP API of Prometheus, or of what speaks as it does. Each query gives one ratio for each node, under
// label node, nodename, kubernetes_node or instance (a node's name, or an address of it, with or without a port).
type Prometheus struct {
	// URL without /api/v1/query.
	URL                   string
	CPUQuery, MemoryQuery string
	// MaxAge is what $age in a query stands for. Prometheus stamps what it gives with the time of the question, so only the
	// range of a query bounds the age of its samples: without one a sample may be as old as Prometheus's lookback (5m).
	MaxAge time.Duration
	// HTTP sends the questions, with credentials where they are needed.
	HTTP *http.Client
}

// Name implements Source.
func (p *Prometheus) Name() string { return SourcePrometheus }

// Nodes implements Source.
func (p *Prometheus) Nodes(ctx context.Context, nodes []*corev1.Node) (map[string]Usage, error) {
	cpu, err := p.ask(ctx, p.CPUQuery)
	if err != nil {
		return nil, err
	}
	memory, err := p.ask(ctx, p.MemoryQuery)
	if err != nil {
		return nil, err
	}
	return byNode(p.Name(), nodes, cpu, memory)
}

// answer of /api/v1/query.
type answer struct {
	Status    string `json:"status"`
	ErrorType string `json:"errorType"`
	Error     string `json:"error"`
	Data      struct {
		ResultType string   `json:"resultType"`
		Result     []sample `json:"result"`
	} `json:"data"`
}

type sample struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`
}

func (p *Prometheus) ask(ctx context.Context, query string) ([]labelled, error) {
	form := url.Values{"query": {strings.ReplaceAll(query, ageVariable, fmt.Sprintf("%dms", p.MaxAge.Milliseconds()))}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(p.URL, "/")+"/api/v1/query", strings.NewReader(form.Encode()))
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	reply, err := p.HTTP.Do(request)
	if err != nil {
		return nil, named(p.Name(), err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(io.LimitReader(reply.Body, mostBytes+1))
	if err != nil {
		return nil, named(p.Name(), fmt.Errorf("reading the answer: %w", err))
	}
	if len(body) > mostBytes {
		return nil, bad(p.Name(), "the answer is longer than %d bytes", mostBytes)
	}
	return p.parse(reply.StatusCode, body)
}

// parse reads an answer.
func (p *Prometheus) parse(status int, body []byte) ([]labelled, error) {
	var a answer
	err := json.Unmarshal(body, &a)
	switch {
	case status != http.StatusOK && (err != nil || a.Error == ""):
		return nil, &Error{Source: p.Name(), Kind: kindOfStatus(status), Err: errors.New(http.StatusText(status))}
	case status != http.StatusOK:
		return nil, &Error{Source: p.Name(), Kind: kindOfStatus(status), Err: fmt.Errorf("%s: %s", a.ErrorType, a.Error)}
	case a.Data.ResultType != "" && a.Data.ResultType != "vector":
		return nil, bad(p.Name(), "the query gives a %s; it must give an instant vector, one sample for each node", a.Data.ResultType)
	case err != nil:
		return nil, bad(p.Name(), "%w", err)
	case a.Status != "success":
		return nil, bad(p.Name(), "status is %q", a.Status)
	}
	out := make([]labelled, 0, len(a.Data.Result))
	for _, s := range a.Data.Result {
		l, err := s.read()
		if err != nil {
			return nil, bad(p.Name(), "sample of %v: %w", s.Metric, err)
		}
		out = append(out, l)
	}
	return out, nil
}

// read takes a sample apart: its time in seconds, and its value as text.
func (s sample) read() (labelled, error) {
	seconds, ok := s.Value[0].(float64)
	text, isText := s.Value[1].(string)
	if !ok || !isText {
		return labelled{}, fmt.Errorf("value is %v; want a time and a number as text", s.Value)
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return labelled{}, err
	}
	node := ""
	for _, key := range []string{"node", "nodename", "kubernetes_node", "instance"} {
		if node = s.Metric[key]; node != "" {
			break
		}
	}
	if node == "" {
		return labelled{}, errors.New("no label node, nodename, kubernetes_node or instance")
	}
	return labelled{node: node, value: Value{Ratio: value, At: time.UnixMilli(int64(seconds * 1000))}}, nil
}
