package frontdoor

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// How long answers of the API server count.
const (
	whoCounts = time.Minute
	mayCounts = 5 * time.Minute
	mayNot    = 30 * time.Second
)

// Judge asks the API server who a caller is (TokenReview) and whether he may (SubjectAccessReview on the path as
// a non-resource URL), as the API server's own delegation does. That is not used: it brings half an API server along,
// which every node would have in memory.
type Judge struct {
	asker *asker
	who   *answers
	may   *answers
}

// NewJudge makes one. The client may create tokenreviews and subjectaccessreviews.
func NewJudge(config *rest.Config, client *http.Client, clk clock.PassiveClock) (*Judge, error) {
	asker, err := newAsker(config, client)
	if err != nil {
		return nil, err
	}
	return &Judge{asker: asker, who: newAnswers(clk), may: newAnswers(clk)}, nil
}

// around lets those in who may. What callers do wrong is not in the log unless it is asked for: anybody could
// fill it.
func (j *Judge) around(log logr.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := j.judge(r, log)
		if err == nil {
			next.ServeHTTP(w, r)
			return
		}
		log.V(1).Info("refused a caller", "path", r.URL.Path, "address", r.RemoteAddr, "why", err.Error())
		refuse(w, err)
	})
}

// judge returns a Problem, or nil.
func (j *Judge) judge(r *http.Request, log logr.Logger) error {
	token := bearer(r)
	if token == "" {
		return &Problem{Code: http.StatusUnauthorized, Reason: ReasonUnauthorized, Message: "there is no token; want header Authorization: Bearer <token of a ServiceAccount>"}
	}
	who, err := j.identify(r.Context(), token)
	switch {
	case err != nil:
		log.Error(err, "asking the API server who a caller is")
		return Unavailable("the API server cannot be asked who you are")
	case who == nil:
		return &Problem{Code: http.StatusUnauthorized, Reason: ReasonUnauthorized, Message: "the token is none of this cluster, or no longer valid"}
	}
	verb := strings.ToLower(r.Method)
	allowed, err := j.authorize(r.Context(), who, verb, r.URL.Path)
	switch {
	case err != nil:
		log.Error(err, "asking the API server what a caller may")
		return Unavailable("the API server cannot be asked whether you may do this")
	case !allowed:
		return &Problem{Code: http.StatusForbidden, Reason: ReasonForbidden, Message: fmt.Sprintf("%s may not %s %s; want a ClusterRole with nonResourceURLs [%s] and verbs [%s]", who.Username, verb, r.URL.Path, r.URL.Path, verb)}
	}
	r.Header.Del("Authorization") // whoever comes after has no use for it
	return nil
}

// bearer is the token of a request; empty without one.
func bearer(r *http.Request) string {
	fields := strings.Fields(r.Header.Get("Authorization"))
	if len(fields) != 2 || !strings.EqualFold(fields[0], "Bearer") {
		return ""
	}
	return fields[1]
}
