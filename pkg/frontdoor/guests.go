package frontdoor

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// guests bounds the connections at once, of one address and of all. One too many takes the place of the oldest
// that waits: whoever hoards connections must not keep others, and above all not the kubelet's probes, from
// getting in. A connection whose request is being answered keeps its place.
type guests struct {
	net.Listener
	each, all int

	mu   sync.Mutex
	list []*guest // the oldest first
}

type guest struct {
	net.Conn
	host  string
	busy  bool
	leave func()
}

// Close implements net.Conn.
func (g *guest) Close() error {
	g.leave()
	return g.Conn.Close()
}

// Accept implements net.Listener.
func (g *guests) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if in := g.let(conn); in != nil {
			return in, nil
		}
		_ = conn.Close() // all are busy
	}
}

// let gives a connection its place, that of another if it must be; nil when there is none.
func (g *guests) let(conn net.Conn) net.Conn {
	in := &guest{Conn: conn, host: hostOf(conn.RemoteAddr().String())}
	in.leave = sync.OnceFunc(func() { g.forget(in) })
	g.mu.Lock()
	out, full := g.crowded(in.host)
	if !full || out != nil {
		g.list = append(g.list, in)
	}
	g.mu.Unlock()
	switch {
	case out != nil:
		_ = out.Close()
	case full:
		return nil
	}
	return in
}

// crowded says whether there is no place for one more of the host, and who then waits longest: of that host, or
// of the one that has most.
func (g *guests) crowded(host string) (oldest *guest, full bool) {
	counts := map[string]int{}
	for _, in := range g.list {
		counts[in.host]++
	}
	if counts[host] < g.each {
		if len(g.list) < g.all {
			return nil, false
		}
		for other, n := range counts {
			if n > counts[host] {
				host = other
			}
		}
	}
	for _, in := range g.list {
		if in.host == host && !in.busy {
			return in, true
		}
	}
	return nil, true
}

func (g *guests) forget(in *guest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, other := range g.list {
		if other == in {
			g.list = append(g.list[:i:i], g.list[i+1:]...)
			return
		}
	}
}

// follow is told by the server how far a connection is.
func (g *guests) follow(conn net.Conn, state http.ConnState) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	in, ok := conn.(*guest)
	if !ok {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	in.busy = state == http.StateActive // its header has been read
}

func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}
