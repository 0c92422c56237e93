package usage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

// Kinds of errors: what is to be done about them differs. They are label values.
const (
	// KindTimeout: there was no answer in time.
	KindTimeout = "Timeout"
	// KindUnreachable: nobody listens there, or the name or certificate is not right.
	KindUnreachable = "Unreachable"
	// KindDenied: the credentials are not accepted.
	KindDenied = "Denied"
	// KindNotInstalled: the cluster or server does not have it.
	KindNotInstalled = "NotInstalled"
	// KindRefused: the question is not accepted.
	KindRefused = "Refused"
	// KindUnavailable: it is there and cannot answer now.
	KindUnavailable = "Unavailable"
	// KindBadAnswer: the answer is not what it should be.
	KindBadAnswer = "BadAnswer"
)

// Kinds are all of them.
var Kinds = []string{KindTimeout, KindUnreachable, KindDenied, KindNotInstalled, KindRefused, KindUnavailable, KindBadAnswer}

// Error says why a source has no answer.
type Error struct {
	// Source is one of Sources, Kind one of Kinds.
	Source, Kind string
	Err          error
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("reading usage from %s: %s: %v", e.Source, e.Kind, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// named makes an error one of a source.
func named(source string, err error) *Error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	return &Error{Source: source, Kind: kindOf(err), Err: err}
}

// kindOf an error of the way there, or of the API server.
func kindOf(err error) string {
	var status apierrors.APIStatus
	var timeout net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return KindTimeout
	case meta.IsNoMatchError(err):
		return KindNotInstalled
	case errors.As(err, &status):
		return kindOfStatus(int(status.Status().Code))
	}
	return KindUnreachable
}

// kindOfStatus is what an HTTP status means.
func kindOfStatus(code int) string {
	switch {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return KindDenied
	case code == http.StatusNotFound || code == http.StatusMethodNotAllowed:
		return KindNotInstalled
	case code == http.StatusGatewayTimeout || code == http.StatusRequestTimeout:
		return KindTimeout
	case code >= http.StatusInternalServerError || code == http.StatusTooManyRequests:
		return KindUnavailable
	}
	return KindRefused
}

// bad is an answer that is not what it should be.
func bad(source, format string, values ...any) *Error {
	return &Error{Source: source, Kind: KindBadAnswer, Err: fmt.Errorf(format, values...)}
}
