package frontdoor

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"
)

// SetRT is the body of POST /set-rt: a budget that a container should have.
type SetRT struct {
	// ContainerID of the container, with or without the runtime before it.
	ContainerID ContainerID
	// PeriodUs and RuntimeUs in microseconds.
	PeriodUs, RuntimeUs int64
	// Core in the kernel's list format; empty when not given.
	Core string
}

// Overrun is the body of POST /overrun: a container used up its budget.
type Overrun struct {
	// Node that it runs on.
	Node string
	// ContainerID of the container, with or without the runtime before it.
	ContainerID ContainerID
	// Timestamp of the overrun by any clock that does not go back; later ones are larger.
	Timestamp uint64
}

// ContainerID names a container exactly: never by a part of its ID.
type ContainerID struct {
	// Runtime is containerd, cri-o or docker; empty when the caller did not say.
	Runtime string
	// ID is 64 hexadecimal digits.
	ID string
}

// Is says whether a container ID of a pod's status, runtime://id, names the same container.
func (c ContainerID) Is(status string) bool {
	runtime, id, found := strings.Cut(status, "://")
	return found && id == c.ID && c.ID != "" && (c.Runtime == "" || c.Runtime == runtime)
}

// idLength of container IDs of every runtime.
const idLength = 64

var runtimes = []string{"containerd", "cri-o", "docker"}

// ParseContainerID reads an ID with or without its runtime.
func ParseContainerID(text string) (ContainerID, error) {
	if text == "" {
		return ContainerID{}, BadRequest("container_id is missing or empty; want the whole ID of one container")
	}
	runtime, id, found := strings.Cut(text, "://")
	if !found {
		runtime, id = "", text
	} else if !slices.Contains(runtimes, runtime) {
		return ContainerID{}, BadRequest("container_id %q begins with another runtime than %s", short(text), strings.Join(runtimes, ", "))
	}
	if len(id) != idLength || strings.Trim(id, "0123456789abcdef") != "" {
		return ContainerID{}, BadRequest("container_id %q; want all %d hexadecimal digits of one container's ID", short(text), idLength)
	}
	return ContainerID{Runtime: runtime, ID: id}, nil
}

func short(text string) string {
	if len(text) <= 100 {
		return text
	}
	return strings.ToValidUTF8(text[:100], "") + "..."
}

// Bounds of what the kernel takes, in microseconds.
const (
	maxPeriodUs = 10_000_000
	maxNodeName = 253
	maxCoreList = 64
)

// ParseSetRT reads the body of POST /set-rt. The error is a Problem.
func ParseSetRT(body []byte) (SetRT, error) {
	var in struct {
		ContainerID *string `json:"container_id"`
		Period      *int64  `json:"period"`
		Runtime     *int64  `json:"runtime"`
		Core        *string `json:"core"`
	}
	if err := strict(body, &in); err != nil {
		return SetRT{}, err
	}
	id, err := ParseContainerID(deref(in.ContainerID))
	if err != nil {
		return SetRT{}, err
	}
	switch {
	case in.Period == nil:
		return SetRT{}, BadRequest("period is missing; want microseconds")
	case *in.Period < 1 || *in.Period > maxPeriodUs:
		return SetRT{}, BadRequest("period is %d; want 1 to %d microseconds", *in.Period, maxPeriodUs)
	case in.Runtime == nil:
		return SetRT{}, BadRequest("runtime is missing; want microseconds")
	case *in.Runtime < 1 || *in.Runtime > *in.Period:
		return SetRT{}, BadRequest("runtime is %d; want 1 to period, %d microseconds", *in.Runtime, *in.Period)
	case len(deref(in.Core)) > maxCoreList:
		return SetRT{}, BadRequest("core has %d characters; want at most %d", len(*in.Core), maxCoreList)
	}
	return SetRT{ContainerID: id, PeriodUs: *in.Period, RuntimeUs: *in.Runtime, Core: deref(in.Core)}, nil
}

// ParseOverrun reads the body of POST /overrun. The error is a Problem.
func ParseOverrun(body []byte) (Overrun, error) {
	var in struct {
		Node        *string `json:"node_name"`
		ContainerID *string `json:"container_id"`
		Timestamp   *uint64 `json:"timestamp"`
	}
	if err := strict(body, &in); err != nil {
		return Overrun{}, err
	}
	id, err := ParseContainerID(deref(in.ContainerID))
	if err != nil {
		return Overrun{}, err
	}
	switch node := deref(in.Node); {
	case node == "":
		return Overrun{}, BadRequest("node_name is missing or empty; want the node that the container runs on")
	case len(node) > maxNodeName:
		return Overrun{}, BadRequest("node_name has %d characters; want at most %d", len(node), maxNodeName)
	case in.Timestamp == nil || *in.Timestamp == 0:
		return Overrun{}, BadRequest("timestamp is missing or 0; want when the overrun was, by a clock that does not go back")
	}
	return Overrun{Node: *in.Node, ContainerID: id, Timestamp: *in.Timestamp}, nil
}

// strict reads one JSON object and nothing behind it.
func strict(body []byte, into any) error {
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return BadRequest("the body is not a JSON object")
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	var raw json.RawMessage
	if err := decoder.Decode(&raw); err != nil {
		return BadRequest("the body is not JSON: %v", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return BadRequest("something follows the JSON object")
	}
	faults, err := kjson.UnmarshalStrict(raw, into, kjson.DisallowDuplicateFields)
	if err != nil {
		return BadRequest("the body does not fit: %v", err)
	}
	if len(faults) > 0 {
		return BadRequest("the body does not fit: %v", faults[0])
	}
	return nil
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
