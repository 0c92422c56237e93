package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/printable"
)

// Question is the body of a request. The first three fields are those of the SDI Migration Service; engines ignore the rest
// if they do not know it.
type Question struct {
	Pod        Pod    `json:"pod"`
	SourceNode string `json:"source_node"`
	TargetNode string `json:"target_node"`
	// Trigger is why the pod is to go, and Criticality that of its McKube; empty without one.
	Trigger     string `json:"trigger,omitempty"`
	Criticality string `json:"criticality,omitempty"`

	// UID of the pod: answers are kept by it.
	UID types.UID `json:"-"`
}

// Pod is what an engine is told of the pod.
type Pod struct {
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	NodeName  string            `json:"node_name"`
	Labels    map[string]string `json:"labels"`
	// Male are its annotations male.keti.dev/*, which count where no label of the name does.
	Male map[string]string `json:"male,omitempty"`
}

// Answer is what an engine says.
type Answer struct {
	Allowed bool
	// Reason in the engine's words, cut to a sentence.
	Reason string
	// Cached: it was given to the same question before.
	Cached bool
}

// mostReason is how many bytes of a reason are kept.
const mostReason = 512

// post asks once.
func (e *Engine) post(ctx context.Context, q Question) (Answer, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return Answer{}, fmt.Errorf("encoding the question: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.address, bytes.NewReader(body))
	if err != nil {
		return Answer{}, fmt.Errorf("making the request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "mainspring")
	if e.config.Token != nil {
		token, err := e.config.Token(ctx)
		if err != nil {
			return Answer{}, fmt.Errorf("reading the token: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return Answer{}, err // it names the address and what failed; no header is in it
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return Answer{}, fmt.Errorf("it answers %d %s, not with success", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer+1))
	if err != nil {
		return Answer{}, fmt.Errorf("reading the answer: %w", err)
	}
	return parse(data)
}

// parse reads an answer. Only what says exactly what the protocol says is one.
func parse(data []byte) (Answer, error) {
	if len(data) > mostAnswer {
		return Answer{}, fmt.Errorf("the answer has more than %d bytes", mostAnswer)
	}
	fields, err := parseObject(data)
	if err != nil {
		return Answer{}, err
	}
	allowed, ok := fields["allowed"]
	if !ok {
		return Answer{}, errors.New(`the answer has no field "allowed"`)
	}
	a := Answer{}
	switch string(allowed) {
	case "true":
		a.Allowed = true
	case "false":
	default:
		return Answer{}, errors.New(`field "allowed" of the answer is neither true nor false`)
	}
	if reason, ok := fields["reason"]; ok && string(reason) != "null" {
		if err := json.Unmarshal(reason, &a.Reason); err != nil {
			return Answer{}, errors.New(`field "reason" of the answer is not a string`)
		}
	}
	a.Reason = short(printable.Line(a.Reason))
	return a, nil
}

// parseObject reads a JSON object. Of two fields of one name parsers keep the first or the last (RFC 8259, section 4): who checks an answer on
// its way may have read the other one, so that it is an error.
func parseObject(data []byte) (map[string]json.RawMessage, error) {
	notAnObject := errors.New("the answer is not a JSON object")
	decoder := json.NewDecoder(bytes.NewReader(data))
	if begin, err := decoder.Token(); err != nil || begin != json.Delim('{') {
		return nil, notAnObject
	}
	fields := map[string]json.RawMessage{}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, notAnObject
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, notAnObject
		}
		field, _ := name.(string) // of an object, every other token is one
		if _, twice := fields[field]; twice {
			return nil, fmt.Errorf("the answer has field %q twice", printable.Line(short(field)))
		}
		fields[field] = value
	}
	if _, err := decoder.Token(); err != nil {
		return nil, notAnObject
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, notAnObject
	}
	return fields, nil
}

// short cuts a text between characters.
func short(text string) string {
	if len(text) <= mostReason {
		return text
	}
	end := mostReason
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}
