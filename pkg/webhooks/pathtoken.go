package webhooks

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/utils/clock"
)

// An API server shows no client certificate to a webhook unless its operator configured one (Options.ClientCA). What every API
// server does know is the path in the webhook configuration, which only administrators may read. The path
// therefore begins with a random token, and the server answers no other. An API server that cannot reach the webhook tells the path to the
// user whose request failed, so the leader replaces the token when it starts and every tokenLife.

const (
	// tokenBytes is how many random bytes the token is made of.
	tokenBytes = 32
	// tokenLife is how long a token is in the configurations.
	tokenLife = 10 * time.Minute
	// tokenOverlap is how long the token before is accepted: API servers learn of the new one by a watch.
	tokenOverlap = time.Minute
)

// tokenPath is the path of a webhook: the token, then the path of the handler.
var tokenPath = regexp.MustCompile(`^/([0-9a-f]{64})(/[a-z-]+)$`)

// handlerPaths are the paths of the handlers by the names of their webhooks in the chart's files/webhooks.yaml.
var handlerPaths = map[string]string{
	templateName:                           PathMutatePods,
	"workloads.place.kcloud.io":            PathPlaceWorkloads,
	"pods.validate.mckube.io":              PathValidatePods,
	"mckubes.validate.mckube.io":           PathValidateMcKubes,
	"migrationpolicies.validate.mckube.io": PathValidateMigrationPolicies,
	"evictions.migrate.mckube.io":          PathEvictions,
}

// newToken makes a token of random bytes.
func newToken() string {
	random := make([]byte, tokenBytes)
	_, _ = rand.Read(random) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(random)
}

// tokenIn returns the token that the configurations of webhooks have, the first of them; empty for none.
func tokenIn(configs ...admissionv1.WebhookClientConfig) string {
	for _, config := range configs {
		if parts := tokenPath.FindStringSubmatch(pathOf(config)); parts != nil {
			return parts[1]
		}
	}
	return ""
}

// pathOf returns the path at which the API server calls the webhook.
func pathOf(config admissionv1.WebhookClientConfig) string {
	switch {
	case config.Service != nil && config.Service.Path != nil:
		return *config.Service.Path
	case config.URL != nil:
		if at, err := url.Parse(*config.URL); err == nil {
			return at.Path
		}
	}
	return ""
}

// setPath has the API server call the webhook at the path. It reports whether that is a change.
func setPath(config *admissionv1.WebhookClientConfig, path string) (changed bool) {
	if pathOf(*config) == path {
		return false
	}
	if config.Service != nil {
		config.Service.Path = &path
		return true
	}
	if config.URL == nil {
		return false
	}
	at, err := url.Parse(*config.URL)
	if err != nil {
		return false
	}
	at.Path = path
	address := at.String()
	config.URL = &address
	return true
}

// pathToken is what this replica answers to: the token in the configurations and, for tokenOverlap, the one before. It is safe for
// concurrent use.
type pathToken struct {
	clock             clock.PassiveClock
	mu                sync.Mutex
	current, previous string
	replaced          time.Time
}

// set takes the token from the configurations of webhooks. Configurations without one change nothing.
func (t *pathToken) set(configs ...admissionv1.WebhookClientConfig) {
	token := tokenIn(configs...)
	t.mu.Lock()
	defer t.mu.Unlock()
	if token != "" && token != t.current {
		t.current, t.previous, t.replaced = token, t.current, t.clock.Now()
	}
}

// known returns an error until there is a token.
func (t *pathToken) known() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current == "" {
		return errors.New("the webhook configuration has no secret path yet")
	}
	return nil
}

// accepts reports whether a request with the token is the API server's.
func (t *pathToken) accepts(token string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != "" && subtle.ConstantTimeCompare([]byte(token), []byte(t.current)) == 1 {
		return true
	}
	return t.previous != "" && t.clock.Since(t.replaced) < tokenOverlap && subtle.ConstantTimeCompare([]byte(token), []byte(t.previous)) == 1
}

// require passes requests that know the token on to next, without the token in their path. It reads no body of any other.
func (t *pathToken) require(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts := tokenPath.FindStringSubmatch(r.URL.Path)
		if parts == nil || !t.accepts(parts[1]) {
			unknownClients.Inc()
			http.NotFound(w, r)
			return
		}
		inner := r.Clone(r.Context())
		inner.URL.Path, inner.URL.RawPath = parts[2], ""
		next.ServeHTTP(w, inner)
	})
}
