package fastpath_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath"
	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
)

// realtimeNode is one whose readers wait unseen by the Go runtime.
func realtimeNode(t *testing.T) *node {
	t.Helper()
	n := newNode(t, newKernel("/a"), t.TempDir())
	n.Realtime = true
	ctx, stop := context.WithCancel(t.Context())
	n.stop = stop
	go func() { n.ended <- n.Run(ctx, nil) }()
	t.Cleanup(n.end)
	for _, r := range n.programs.rings {
		<-r.waits
	}
	return n
}

func (n *node) held() int {
	held := 0
	for _, r := range n.programs.rings {
		if r.held.Load() {
			held++
		}
	}
	return held
}

// body calls a function when it is read, and ends then.
type body struct {
	*strings.Reader
	read func()
}

func (b *body) Read(p []byte) (int, error) {
	b.read()
	return b.Reader.Read(p)
}

func send(n *node, length int64, read func()) int {
	request := httptest.NewRequest(http.MethodPut, client.PathTable, io.NopCloser(&body{strings.NewReader("{}"), read}))
	request.ContentLength = length
	answer := httptest.NewRecorder()
	fastpath.Handler(n.Engine).ServeHTTP(answer, request)
	return answer.Code
}

// A body that may have garbage collected is announced to the readers; the small ones of every day are not.
func TestABigBodyIsAnnounced(t *testing.T) {
	n := realtimeNode(t)
	for name, c := range map[string]struct {
		length int64
		held   int
	}{
		"small": {2, 2}, "big": {1 << 20, 0}, "of unknown length": {-1, 0},
	} {
		read := 0
		code := send(n, c.length, func() {
			read++
			if got := n.held(); got != c.held {
				t.Errorf("%s: while it is read %d readers are held; want %d", name, got, c.held)
			}
		})
		if code != http.StatusNoContent || read == 0 {
			t.Errorf("%s: %d, read %d times", name, code, read)
		}
		if got := n.held(); got != 2 {
			t.Errorf("%s: afterwards %d readers are held; want both", name, got)
		}
	}
}

// Of big bodies one is read at a time; of all requests a few are answered at once.
func TestBodiesAreLimited(t *testing.T) {
	for length, most := range map[int64]int32{1 << 20: 1, 2: 8} {
		n := realtimeNode(t)
		var at, highest atomic.Int32
		var all sync.WaitGroup
		for range 40 {
			all.Go(func() {
				send(n, length, func() {
					now := at.Add(1)
					for seen := highest.Load(); now > seen && !highest.CompareAndSwap(seen, now); seen = highest.Load() {
					}
					for range 100 {
						runtime.Gosched() // the others have every chance
					}
					at.Add(-1)
				})
			})
		}
		all.Wait()
		if got := highest.Load(); got > most {
			t.Errorf("%d bytes: %d bodies are read at once; want at most %d", length, got, most)
		}
	}
}

// What requests leave behind is collected before the runtime does so by itself, at its limit, which the readers would not
// know of.
func TestRequestsLeaveNoHeapBehind(t *testing.T) {
	n := realtimeNode(t)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	text := []byte(`{"servers":[` + strings.Repeat(" ", 3<<20) + `]}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 20 {
		request := httptest.NewRequest(http.MethodPut, client.PathTable, bytes.NewReader(text))
		fastpath.Handler(n.Engine).ServeHTTP(httptest.NewRecorder(), request)
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 24<<20 {
		t.Errorf("twenty requests of 3 MiB leave %d MiB", grown>>20)
	}
}

// A table lets go of all servers that it does not name, so what is no whole one is refused, in words.
func TestWhatIsNoObjectLetsGoOfNoServer(t *testing.T) {
	n := start(t, newKernel("/a"), t.TempDir())
	n.apply(tableOf(1, high("a", "/a", 0)))
	for text, want := range map[string]string{
		"null": "the body is null; want one JSON object", "": "the body is empty; want one JSON object", " \n": "the body is empty",
		"{} {}": "goes on after its JSON object, which ends at byte 2; want nothing behind it", "{}]": "goes on after its JSON object",
		"{}null": "goes on after", "[]": "cannot unmarshal array", `{"servers":[`: "unexpected EOF",
	} {
		for _, length := range []int64{int64(len(text)), -1} {
			request := httptest.NewRequest(http.MethodPut, client.PathTable, strings.NewReader(text))
			request.ContentLength = length
			answer := httptest.NewRecorder()
			fastpath.Handler(n.Engine).ServeHTTP(answer, request)
			if answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), want) {
				t.Errorf("%q: %d %s; want it to be refused: %s", text, answer.Code, answer.Body, want)
			}
		}
	}
	if got := n.Report(); len(got.Servers) != 1 || got.Generation != 1 {
		t.Errorf("%+v; want the table as it was", got)
	}
	request := httptest.NewRequest(http.MethodPut, client.PathTable, strings.NewReader("{\"generation\":2}\n"))
	answer := httptest.NewRecorder()
	if fastpath.Handler(n.Engine).ServeHTTP(answer, request); answer.Code != http.StatusNoContent || len(n.Report().Servers) != 0 {
		t.Errorf("an empty table: %d %s", answer.Code, answer.Body)
	}
}
