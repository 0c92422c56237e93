package frontdoor

import (
	"net/http"

	"github.com/go-logr/logr"
)

// Judge is judge.
func (j *Judge) Judge(r *http.Request) error { return j.judge(r, logr.Discard()) }
