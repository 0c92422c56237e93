package frontdoor

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// Problem is why a request is refused; it is the answer's body.
type Problem struct {
	// Code is the HTTP status.
	Code int `json:"code"`
	// Reason is one PascalCase word.
	Reason string `json:"reason"`
	// Message for people names field, value and bound.
	Message string `json:"message"`
}

// Error implements error.
func (p *Problem) Error() string { return p.Message }

// Reasons of Problems.
const (
	ReasonBadRequest   = "BadRequest"
	ReasonUnauthorized = "Unauthorized"
	ReasonForbidden    = "Forbidden"
	ReasonNotFound     = "NotFound"
	ReasonNotAllowed   = "NotAllowed"
	ReasonTooLarge     = "TooLarge"
	ReasonTooMany      = "TooManyRequests"
	ReasonUnavailable  = "Unavailable"
	ReasonInternal     = "Internal"
)

// BadRequest is a request that makes no sense.
func BadRequest(format string, args ...any) *Problem {
	return &Problem{Code: http.StatusBadRequest, Reason: ReasonBadRequest, Message: fmt.Sprintf(format, args...)}
}

// NotFound is a request about something that is not there.
func NotFound(format string, args ...any) *Problem {
	return &Problem{Code: http.StatusNotFound, Reason: ReasonNotFound, Message: fmt.Sprintf(format, args...)}
}

// NotAllowed is a request that the present state forbids.
func NotAllowed(format string, args ...any) *Problem {
	return &Problem{Code: http.StatusConflict, Reason: ReasonNotAllowed, Message: fmt.Sprintf(format, args...)}
}

// Unavailable is a request that cannot be answered now.
func Unavailable(format string, args ...any) *Problem {
	return &Problem{Code: http.StatusServiceUnavailable, Reason: ReasonUnavailable, Message: fmt.Sprintf(format, args...)}
}

// refuse writes a Problem; other errors are an internal one, without their text.
func refuse(w http.ResponseWriter, err error) {
	problem := (*Problem)(nil)
	if !errors.As(err, &problem) {
		problem = &Problem{Code: http.StatusInternalServerError, Reason: ReasonInternal, Message: "the request could not be carried out; the log says why"}
	}
	if problem.Code == http.StatusServiceUnavailable || problem.Code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	answer(w, problem.Code, problem)
}

// answer writes JSON. The client may be gone; nobody is left to tell then.
func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}
