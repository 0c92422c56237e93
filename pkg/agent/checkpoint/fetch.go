package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// ErrStalled means that a transfer has not advanced for too long.
var ErrStalled = errors.New("the transfer does not advance")

const (
	// stallAfter is how long a transfer may stand still (KubeVirt's progressTimeout).
	stallAfter = 150 * time.Second
	// retryFirst and retryMost bound the pause after a transfer that broke off.
	retryFirst, retryMost = 250 * time.Millisecond, 10 * time.Second
	// attemptTimeout bounds the wait for an answer; the data have stallAfter.
	attemptTimeout = 15 * time.Second
	// silence is how long nothing may come of a transfer that has begun.
	silence = 30 * time.Second
)

// fetch is one archive that is on its way.
type fetch struct {
	// peer is where it is now, and a client that speaks only with the agent that holds it: the other agent may be another one
	// with every attempt.
	peer func() (url string, client *http.Client)
	// path of the file, size and digest that it is to have.
	path   string
	bytes  int64
	digest string
	// progress is told how many bytes are there.
	progress func(int64)
	clock    clock.WithTicker
}

// run brings the archive, going on where an earlier attempt, also one of an earlier process, has come to. A digest that is
// not right has it begin anew once.
func (f fetch) run(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return fmt.Errorf("making the directory of archives: %w", err)
	}
	var err error
	for range 2 {
		if err = f.complete(ctx); err != nil {
			return err
		}
		var got string
		if _, got, err = own(f.path, f.bytes); err == nil && got == f.digest {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("%w: its digest is %s, not %s", ErrCorrupt, got, f.digest)
		}
		if gone := os.Remove(f.path); gone != nil {
			return errors.Join(err, gone)
		}
	}
	return err
}

// complete tries until the file has its size, or does not grow any longer.
func (f fetch) complete(ctx context.Context) error {
	pause, grown, last := retryFirst, f.clock.Now(), f.size()
	for {
		err := f.attempt(ctx)
		size, now := f.size(), f.clock.Now()
		switch {
		case err == nil && size == f.bytes:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrTooLarge) || errors.Is(err, unix.ENOSPC):
			return err
		case size > last:
			last, grown, pause = size, now, retryFirst
		case now.Sub(grown) >= stallAfter:
			return fmt.Errorf("%w: %d of %d bytes are here: %w", ErrStalled, size, f.bytes, err)
		}
		timer := f.clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C():
		}
		pause = min(2*pause, retryMost)
	}
}

func (f fetch) size() int64 {
	info, err := os.Stat(f.path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// attempt asks for what is missing and appends what comes.
func (f fetch) attempt(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silent := time.AfterFunc(silence, cancel) // an agent that says nothing any longer
	defer silent.Stop()
	have := f.size()
	if have > f.bytes {
		return os.Remove(f.path) // of another archive
	}
	if have == f.bytes {
		return nil
	}
	url, client := f.peer()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("asking for the archive: %w", err)
	}
	request.Header.Set("Range", "bytes="+strconv.FormatInt(have, 10)+"-")
	request.Header.Set("If-Range", `"`+f.digest+`"`)
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("asking for the archive: %w", err)
	}
	defer response.Body.Close()
	flags := os.O_CREATE | os.O_WRONLY | unix.O_NOFOLLOW
	switch response.StatusCode {
	case http.StatusPartialContent:
		flags |= os.O_APPEND
	case http.StatusOK:
		have, flags = 0, flags|os.O_TRUNC
	default:
		return fmt.Errorf("asking for the archive: the other agent answers %s", response.Status)
	}
	return f.take(response.Body, flags, have, func() { silent.Reset(silence) })
}

// take writes no more than the archive's size, however much comes.
func (f fetch) take(body io.Reader, flags int, have int64, alive func()) error {
	file, err := os.OpenFile(f.path, flags, 0o600)
	if err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	counted := &counter{w: file, n: have, tell: func(n int64) { alive(); f.progress(n) }}
	_, err = io.Copy(counted, io.LimitReader(body, f.bytes-have))
	if err == nil {
		if n, _ := io.ReadFull(body, make([]byte, 1)); n > 0 {
			err = fmt.Errorf("%w: there is more than the %d bytes that were told", ErrTooLarge, f.bytes)
		}
	}
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	return nil
}

type counter struct {
	w    io.Writer
	n    int64
	tell func(int64)
}

func (c *counter) Write(data []byte) (int, error) {
	n, err := c.w.Write(data)
	c.n += int64(n)
	c.tell(c.n)
	return n, err
}

// clientFor speaks with the agent that holds the certificate.
func clientFor(i *identity, certificate string) *http.Client {
	dialer := &net.Dialer{Timeout: attemptTimeout}
	return &http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSClientConfig: i.client(certificate), TLSHandshakeTimeout: attemptTimeout,
			ResponseHeaderTimeout: attemptTimeout, DisableKeepAlives: true, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
