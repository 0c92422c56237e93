package frontdoor_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/frontdoor"
)

var good = []byte(`{"container_id":"containerd://` + id64 + `","period":20000,"runtime":4000}`)

func TestOnlyWhomTheClusterLetsComesIn(t *testing.T) {
	d := newDoor(t, frontdoor.DefaultLimits())
	may, mayNot, elsewhere := d.token("may", "/set-rt"), d.token("may-not"), d.token("elsewhere", "/overrun")
	forAPI := d.tokenFor("for-the-api", nil, "/set-rt")
	for _, c := range []struct {
		name, token string
		want        int
		say         string
	}{
		{"nobody", "", http.StatusUnauthorized, "no token"}, {"a token that nobody issued", "nonsense", http.StatusUnauthorized, "none of this cluster"},
		{"a token for the API server", forAPI, http.StatusUnauthorized, "not for audience mckube.io"},
		{"without a right", mayNot, http.StatusForbidden, "may not post /set-rt"}, {"with another right", elsewhere, http.StatusForbidden, "nonResourceURLs [/set-rt]"},
	} {
		code, text := d.post("/set-rt", c.token, good)
		if p := problem(t, text); code != c.want || p.Code != c.want || !strings.Contains(p.Message, c.say) {
			t.Errorf("%s: %d %s, want %d", c.name, code, text, c.want)
		}
	}
	if d.called() != 0 {
		t.Errorf("%d calls of strangers were carried out", d.called())
	}
	if code, text := d.post("/set-rt", may, good); code != http.StatusOK || !strings.Contains(text, id64) {
		t.Errorf("with the right: %d %s", code, text)
	}
	if code, _ := d.send(http.MethodGet, "/status", forAPI, nil); code != http.StatusForbidden {
		t.Errorf("the right to one path opens another: %d", code)
	}
	if code, _ := d.send(http.MethodGet, "/set-rt", forAPI, nil); code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", code)
	}
	if code, _ := d.send(http.MethodGet, "/healthz", "", nil); code != http.StatusOK {
		t.Errorf("a probe: %d", code)
	}
	if code, _ := d.send(http.MethodGet, "/", "", nil); code != http.StatusNotFound {
		t.Errorf("another path: %d", code)
	}
}

func TestBadBodiesAreRefusedWithAReason(t *testing.T) {
	d := newDoor(t, frontdoor.DefaultLimits())
	token := d.token("may", "/set-rt")
	for _, c := range []struct {
		name string
		body string
		want int
		say  string
	}{
		{"nothing", "", 400, "not a JSON object"},
		{"an empty container", `{"container_id":"","period":20000,"runtime":4000}`, 400, "container_id is missing or empty"},
		{"no JSON", "{", 400, "not JSON"},
		{"too long", `{"container_id":"` + strings.Repeat("a", 5<<10) + `"}`, 413, "more than 4096 bytes"},
	} {
		code, text := d.post("/set-rt", token, []byte(c.body))
		if p := problem(t, text); code != c.want || p.Code != c.want || !strings.Contains(p.Message, c.say) || p.Reason == "" {
			t.Errorf("%s: %d %s", c.name, code, text)
		}
	}
	// A length that is not announced is found when the body is read.
	code, text := d.send(http.MethodPost, "/set-rt", token, io.MultiReader(strings.NewReader(`{"x":"`), strings.NewReader(strings.Repeat("a", 8<<10)), strings.NewReader(`"}`)))
	if code != http.StatusRequestEntityTooLarge {
		t.Errorf("a body in chunks: %d %s", code, text)
	}
	if d.called() != 0 {
		t.Errorf("%d bad requests were carried out", d.called())
	}
}

// What is repeated is carried out again with the same outcome, and many at once do not disturb each other.
func TestRepeatedAndConcurrentRequests(t *testing.T) {
	limits := frontdoor.DefaultLimits()
	limits.Burst = 100
	d := newDoor(t, limits)
	token := d.token("may", "/set-rt")
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			if code, text := d.post("/set-rt", token, good); code != http.StatusOK || !strings.Contains(text, id64) {
				t.Errorf("%d %s", code, text)
			}
		})
	}
	group.Wait()
	if d.called() != 50 {
		t.Errorf("%d calls", d.called())
	}
}

func TestAClientThatFloodsIsHeldBack(t *testing.T) {
	limits := frontdoor.DefaultLimits()
	limits.Burst, limits.PerSecond = 5, 0.001
	d := newDoor(t, limits)
	codes := map[int]int{}
	for range 20 {
		code, _ := d.post("/set-rt", "nonsense", good)
		codes[code]++
	}
	if codes[http.StatusUnauthorized] != 5 || codes[http.StatusTooManyRequests] != 15 {
		t.Errorf("answers: %v", codes)
	}
	if code, _ := d.send(http.MethodGet, "/healthz", "", nil); code != http.StatusOK {
		t.Errorf("probes are held back, too: %d", code)
	}
}

// An API server that is away is no fault of the caller's, who should come again; whom it let in a moment ago may go on.
func TestAnAPIServerThatIsAwayIsNoRefusal(t *testing.T) {
	d := newDoor(t, frontdoor.DefaultLimits())
	known, fresh := d.token("known", "/set-rt"), d.token("fresh", "/set-rt")
	if code, text := d.post("/set-rt", known, good); code != http.StatusOK {
		t.Fatalf("%d %s", code, text)
	}
	d.away.Store(true)
	if code, text := d.post("/set-rt", fresh, good); code != http.StatusServiceUnavailable || problem(t, text).Reason != frontdoor.ReasonUnavailable {
		t.Errorf("the API server is away: %d %s", code, text)
	}
	if code, text := d.post("/set-rt", known, good); code != http.StatusOK {
		t.Errorf("known a moment ago: %d %s", code, text)
	}
	d.away.Store(false)
	if code, text := d.post("/set-rt", fresh, good); code != http.StatusOK {
		t.Errorf("it is back: %d %s", code, text)
	}
}

// Whoever hoards connections loses the oldest; others, and probes of the same address, get in.
func TestHoardersKeepNobodyOut(t *testing.T) {
	limits := frontdoor.DefaultLimits()
	limits.Connections, limits.OfAddress = 8, 4
	d := newDoor(t, limits)
	address := strings.TrimPrefix(d.url, "https://")
	for range 20 {
		conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", address) //nolint:gosec // it is the number that is looked at
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil { //nolint:bodyclose // it is "ok"
			t.Fatal(err)
		}
	}
	if code, _ := d.send(http.MethodGet, "/healthz", "", nil); code != http.StatusOK {
		t.Errorf("a probe: %d", code)
	}
}

// Clients that send nothing, or half, are let go; those that come meanwhile are served.
func TestSlowClientsAreLetGo(t *testing.T) {
	limits := frontdoor.DefaultLimits()
	limits.Header, limits.Read = 300*time.Millisecond, 600*time.Millisecond
	d := newDoor(t, limits)
	token := d.token("may", "/set-rt")
	address := strings.TrimPrefix(d.url, "https://")
	for name, sent := range map[string]string{
		"silent": "", "half a header": "POST /set-rt HTTP/1.1\r\nHost: lo",
		"half a body": fmt.Sprintf("POST /set-rt HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: 100\r\n\r\n{", token),
	} {
		conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", address) //nolint:gosec // it is the patience that is looked at
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, sent); err != nil {
			t.Fatal(err)
		}
		if code, text := d.post("/set-rt", token, good); code != http.StatusOK {
			t.Errorf("beside a client that is %s: %d %s", name, code, text)
		}
		if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(conn)
		if timeout := interface{ Timeout() bool }(nil); errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("%s: still connected after %q", name, answer)
		}
		if strings.Contains(string(answer), "200 OK") {
			t.Errorf("%s: answered %q", name, answer)
		}
		_ = conn.Close()
	}
}
