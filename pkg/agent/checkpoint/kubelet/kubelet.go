// Package kubelet asks the kubelet of this node to checkpoint containers (KEP-2008), and whether it ends a pod.
package kubelet

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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

const (
	// probeTimeout bounds a question that moves no data.
	probeTimeout = 10 * time.Second
	// grace is what the answer may take beyond the time that the runtime is given.
	grace = 15 * time.Second
	// endTimeout bounds the question whether a pod ends: a worker of the agent waits for the answer.
	endTimeout = 2 * time.Second
	// maxAnswer bounds what is read of an answer, and maxPods the kubelet's list of pods, of which one is in memory at a time.
	maxAnswer, maxPods = 64 << 10, 256 << 20
)

// ErrForbidden and ErrNoPods mean that the kubelet answers, and does not let us; ErrOff that its feature ContainerCheckpoint is off.
var (
	ErrForbidden = errors.New("the kubelet does not let the agent checkpoint: it needs verb create on nodes/checkpoint")
	ErrNoPods    = errors.New("the kubelet does not let the agent list its pods: it needs verb get on nodes/pods (KEP-2862, kubelets since 1.33)")
	ErrOff       = errors.New("the kubelet has no checkpoint API: its feature gate ContainerCheckpoint is off")
)

// Client of one kubelet.
type Client struct {
	base string
	http *http.Client
}

// New makes a client of the kubelet at host:port. It is authenticated as that of the API server is. caFile, where given, holds
// the authority that signed the kubelet's certificate; else that is the authority that signed the API server's.
func New(config *rest.Config, endpoint, caFile string) (*Client, error) {
	c := rest.CopyConfig(config)
	c.Host = "https://" + endpoint
	c.ServerName = ""
	if caFile != "" {
		c.CAFile, c.CAData = caFile, nil
	}
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("making the client of the kubelet: %w", err)
	}
	return &Client{base: c.Host, http: client}, nil
}

// Checkpoint writes the container's state and returns the path of the archive. The timeout is what the runtime may take.
func (c *Client) Checkpoint(ctx context.Context, namespace, pod, container string, timeout time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout+grace)
	defer cancel()
	code, text, err := c.post(ctx, namespace, pod, container, timeout)
	if err != nil {
		return "", err
	}
	if code != http.StatusOK {
		return "", fmt.Errorf("checkpointing container %s: the kubelet answers %d: %s", container, code, firstLine(text))
	}
	return archiveOf(text)
}

// archiveOf reads the kubelet's answer.
func archiveOf(text []byte) (string, error) {
	var answer struct{ Items []string }
	if err := json.Unmarshal(text, &answer); err != nil {
		return "", fmt.Errorf("reading the kubelet's answer: %w", err)
	}
	if len(answer.Items) != 1 || answer.Items[0] == "" {
		return "", fmt.Errorf("reading the kubelet's answer: it names %d archives; want one", len(answer.Items))
	}
	return answer.Items[0], nil
}

// Allowed says what keeps the kubelet from checkpointing for us: it is asked to checkpoint a pod that cannot exist, which
// shows all but the checkpoint itself.
func (c *Client) Allowed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	code, text, err := c.post(ctx, "mainspring-probe", "no-such-pod", "none", probeTimeout)
	if err != nil {
		return err
	}
	return judge(code, text)
}

func judge(code int, text []byte) error {
	switch {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return fmt.Errorf("%w (%d: %s)", ErrForbidden, code, firstLine(text))
	case code == http.StatusNotFound && strings.Contains(string(text), "pod does not exist"):
		return nil
	case code == http.StatusNotFound:
		return ErrOff
	default:
		return fmt.Errorf("asking the kubelet: it answers %d: %s", code, firstLine(text))
	}
}

// Terminating tells whether the kubelet lists the pod of that UID, and lists it as deleted: its workers end such a pod, and begin none of its
// containers anew (pkg/kubelet/pod_workers.go). After a restart it may not list a pod that it has not read yet.
func (c *Client) Terminating(ctx context.Context, pod types.UID) (listed, terminating bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/pods", nil)
	if err != nil {
		return false, false, fmt.Errorf("asking the kubelet for its pods: %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return false, false, fmt.Errorf("asking the kubelet for its pods: %w", err)
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
		listed, terminating, err = findPod(io.LimitReader(response.Body, maxPods), pod)
		if err != nil {
			err = fmt.Errorf("reading the kubelet's pods: %w", err)
		}
		return listed, terminating, err
	case http.StatusForbidden:
		return false, false, ErrNoPods
	}
	return false, false, fmt.Errorf("asking the kubelet for its pods: it answers %d", response.StatusCode)
}

// errNoList means that an answer is no list of objects.
var errNoList = errors.New("it is no list of items")

// findPod reads a list of pods one by one: all of them together may take more memory than the agent has.
func findPod(list io.Reader, pod types.UID) (listed, deleted bool, err error) {
	decoder := json.NewDecoder(list)
	if err := skipToItems(decoder); err != nil {
		return false, false, err
	}
	for decoder.More() {
		var item struct {
			Metadata struct {
				UID               types.UID
				DeletionTimestamp *metav1.Time
			}
		}
		if err := decoder.Decode(&item); err != nil {
			return false, false, err
		}
		if item.Metadata.UID == pod {
			return true, item.Metadata.DeletionTimestamp != nil, nil
		}
	}
	_, err = decoder.Token() // an answer that was cut has no end of the list
	return false, false, err
}

// skipToItems reads up to the beginning of the list.
func skipToItems(decoder *json.Decoder) error {
	for depth := 0; ; {
		token, err := decoder.Token()
		switch {
		case err != nil:
			return err
		case token == json.Delim('{') || token == json.Delim('['):
			depth++
		case token == json.Delim('}') || token == json.Delim(']'):
			depth--
		}
		switch {
		case depth == 0:
			return errNoList
		case depth == 1 && token == "items":
			if token, err = decoder.Token(); err == nil && token != json.Delim('[') {
				err = errNoList
			}
			return err
		}
	}
}

func (c *Client) post(ctx context.Context, namespace, pod, container string, timeout time.Duration) (int, []byte, error) {
	path := strings.Join([]string{c.base, "checkpoint", url.PathEscape(namespace), url.PathEscape(pod), url.PathEscape(container)}, "/")
	path += "?timeout=" + strconv.Itoa(int(timeout.Seconds()))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, path, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("asking the kubelet: %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return 0, nil, fmt.Errorf("asking the kubelet: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return 0, nil, fmt.Errorf("reading the kubelet's answer: %w", err)
	}
	return response.StatusCode, text, nil
}

// mostText has room for the names of a pod, twice, and for the path of CRIU's log behind them.
const mostText = 1024

func firstLine(text []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return strings.ToValidUTF8(line[:min(len(line), mostText)], "")
}
