package frontdoor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
)

// How long answers of the API server count, and how long one may take.
const (
	whoCounts   = time.Minute
	mayCounts   = 5 * time.Minute
	mayNot      = 30 * time.Second
	askTimeout  = 10 * time.Second
	askAgain    = 200 * time.Millisecond
	askAtMost   = 3
	askSlower   = 1.5
	askVariance = 0.2
)

// Audience is the audience that the token of a caller must have that changes something (TokenReview, spec.audiences). A token for the API server is
// refused: an attacker who has taken over an agent's node could use it there.
const Audience = "mckube.io"

// Judge asks the API server who a caller is (TokenReview) and whether he may (SubjectAccessReview on the path as
// a non-resource URL). It is controller-runtime's filter for metrics, but for what callers are told: there a
// token that nobody issued and an API server that is away are both an internal error.
type Judge struct {
	who authenticator.Request
	may authorizer.Authorizer
}

// NewJudge makes one. The client may create tokenreviews and subjectaccessreviews.
func NewJudge(config *rest.Config, client *http.Client) (*Judge, error) {
	tokens, err := authenticationv1.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("making the client of TokenReviews: %w", err)
	}
	access, err := authorizationv1.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("making the client of SubjectAccessReviews: %w", err)
	}
	again := &wait.Backoff{Duration: askAgain, Factor: askSlower, Jitter: askVariance, Steps: askAtMost}
	j := &Judge{}
	if j.who, _, err = (authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous: &apiserver.AnonymousAuthConfig{Enabled: false}, CacheTTL: whoCounts,
		TokenAccessReviewClient: tokens, TokenAccessReviewTimeout: askTimeout, WebhookRetryBackoff: again,
	}).New(); err != nil {
		return nil, fmt.Errorf("making the authenticator: %w", err)
	}
	if j.may, err = (authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: access, AllowCacheTTL: mayCounts, DenyCacheTTL: mayNot, WebhookRetryBackoff: again,
	}).New(); err != nil {
		return nil, fmt.Errorf("making the authorizer: %w", err)
	}
	return j, nil
}

// around lets those in who may. What callers do wrong is not in the log unless it is asked for: anybody could
// fill it.
func (j *Judge) around(log logr.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := j.judge(r)
		if err == nil {
			next.ServeHTTP(w, r)
			return
		}
		log.V(1).Info("refused a caller", "path", r.URL.Path, "address", r.RemoteAddr, "why", err.Error())
		refuse(w, err)
	})
}

// judge returns a Problem, or nil.
func (j *Judge) judge(r *http.Request) error {
	hint := ""
	if r.Method != http.MethodGet && r.Method != http.MethodHead { // Prometheus reads with a token for the API server
		r = r.WithContext(authenticator.WithAudiences(r.Context(), authenticator.Audiences{Audience}))
		hint = ", or not for audience " + Audience + " (kubectl create token NAME --audience " + Audience + ")"
	}
	who, ok, err := j.who.AuthenticateRequest(r)
	switch {
	case err != nil && unanswered(err):
		return Unavailable("the API server cannot be asked who you are")
	case err != nil:
		return &Problem{Code: http.StatusUnauthorized, Reason: ReasonUnauthorized, Message: "the token is none of this cluster, or no longer valid" + hint}
	case !ok:
		return &Problem{Code: http.StatusUnauthorized, Reason: ReasonUnauthorized, Message: "there is no token; want header Authorization: Bearer <token of a ServiceAccount>"}
	}
	verb := strings.ToLower(r.Method)
	decision, _, err := j.may.Authorize(r.Context(), authorizer.AttributesRecord{User: who.User, Verb: verb, Path: r.URL.Path})
	switch {
	case err != nil:
		return Unavailable("the API server cannot be asked whether you may do this")
	case decision != authorizer.DecisionAllow:
		return &Problem{Code: http.StatusForbidden, Reason: ReasonForbidden, Message: fmt.Sprintf("%s may not %s %s; want a ClusterRole with nonResourceURLs [%s] and verbs [%s]", who.User.GetName(), verb, r.URL.Path, r.URL.Path, verb)}
	}
	return nil
}

// unanswered says that it was the asking that failed. A token that was judged has an error of the
// authenticator's own.
func unanswered(err error) bool {
	var several utilerrors.Aggregate
	if errors.As(err, &several) {
		for _, one := range several.Errors() {
			if unanswered(one) {
				return true
			}
		}
		return false
	}
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		apierrors.ReasonForError(err) != metav1.StatusReasonUnknown
}
