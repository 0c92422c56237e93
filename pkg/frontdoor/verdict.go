package frontdoor

import (
	"net/http"
	"strings"
)

// verdict rewrites what the filter answers: it calls a token that nobody issued an internal error, as it does an
// API server that cannot be asked. Neither is a fault of this server, and clients tell them apart by whether it
// lasts. What the handler behind the filter answers passes unchanged.
type verdict struct {
	http.ResponseWriter
	inside bool // the filter let the request in
	failed bool // an internal error was announced, and its text follows
}

// judged gives every request through the filter its verdict.
func judged(protect func(http.Handler) (http.Handler, error), handler http.Handler) (http.Handler, error) {
	filtered, err := protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if v, ok := w.(*verdict); ok {
			v.inside, w = true, v.ResponseWriter
		}
		handler.ServeHTTP(w, r)
	}))
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		filtered.ServeHTTP(&verdict{ResponseWriter: w}, r)
	}), nil
}

func (v *verdict) WriteHeader(code int) {
	if !v.inside && code == http.StatusInternalServerError {
		v.failed = true
		return
	}
	v.ResponseWriter.WriteHeader(code)
}

func (v *verdict) Write(text []byte) (int, error) {
	if !v.failed {
		return v.ResponseWriter.Write(text)
	}
	v.failed = false
	problem := &Problem{Code: http.StatusServiceUnavailable, Reason: ReasonUnavailable, Message: "the API server cannot be asked whether you may do this"}
	if strings.HasPrefix(string(text), "Authentication") {
		problem = &Problem{Code: http.StatusUnauthorized, Reason: ReasonUnauthorized, Message: "the token is not one of this cluster, or the API server cannot be asked"}
	}
	refuse(v.ResponseWriter, problem)
	return len(text), nil
}
