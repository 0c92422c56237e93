package environment

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// webhookHost is the name by which the API server calls the webhooks.
	webhookHost = "localhost"
	// dialTimeout bounds how long a backend may take to accept.
	dialTimeout = time.Second
)

// service stands in for the Service of the webhooks: an address that leads to whichever replica
// listens. It passes bytes on, so TLS is spoken with the replica itself.
type service struct {
	listener net.Listener
	done     sync.WaitGroup

	mu       sync.Mutex
	backends []int // ports, first choice first
}

func newService(ctx context.Context) (*service, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening in place of a Service: %w", err)
	}
	s := &service{listener: listener}
	s.done.Go(s.run)
	return s, nil
}

// url is where the API server reaches the webhooks. Their certificate names localhost.
func (s *service) url() string {
	return fmt.Sprintf("https://%s:%d", webhookHost, s.listener.Addr().(*net.TCPAddr).Port)
}

// add makes the port one of those that the address leads to.
func (s *service) add(port int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backends = append(s.backends, port)
}

func (s *service) stop() {
	s.listener.Close()
	s.done.Wait()
}

func (s *service) run() {
	for {
		client, err := s.listener.Accept()
		if err != nil {
			return // closed by stop
		}
		go s.serve(client)
	}
}

// serve ends with the connection, and so at the latest with the API server and the replica.
func (s *service) serve(client net.Conn) {
	defer client.Close()
	backend := s.dial()
	if backend == nil {
		return
	}
	defer backend.Close()
	go func() {
		defer backend.Close()
		_, _ = io.Copy(backend, client)
	}()
	_, _ = io.Copy(client, backend)
}

func (s *service) dial() net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, port := range s.backends {
		conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), dialTimeout)
		if err == nil {
			return conn
		}
	}
	return nil
}
