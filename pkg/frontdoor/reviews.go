package frontdoor

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// How the API server is asked.
const (
	askTimeout  = 10 * time.Second
	askAgain    = 200 * time.Millisecond
	askAtMost   = 3
	askSlower   = 1.5
	askVariance = 0.2
)

// allAuthenticated is the group of all whom the API server knows.
const allAuthenticated = "system:authenticated"

// identify says whose a token is; nil: nobody's. An error says that the API server gave no answer.
func (j *Judge) identify(ctx context.Context, token string) (*authenticationv1.UserInfo, error) {
	who, err := j.who.of(ctx, token, func(ctx context.Context) (any, time.Duration, error) {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		if err := j.asker.create(ctx, j.asker.tokens, "tokenreviews", review); err != nil {
			return nil, 0, err
		}
		user := &review.Status.User
		if !review.Status.Authenticated {
			return (*authenticationv1.UserInfo)(nil), 0, nil // it may be valid soon
		}
		if !slices.Contains(user.Groups, allAuthenticated) {
			user.Groups = append(user.Groups, allAuthenticated)
		}
		return user, whoCounts, nil
	})
	if err != nil {
		return nil, err
	}
	return who.(*authenticationv1.UserInfo), nil
}

// authorize says whether somebody may do this to a path. An error says that the API server gave no answer.
func (j *Judge) authorize(ctx context.Context, who *authenticationv1.UserInfo, verb, path string) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range who.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: who.Username, UID: who.UID, Groups: who.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: verb},
	}
	question, err := json.Marshal(spec)
	if err != nil {
		return false, fmt.Errorf("encoding the question: %w", err)
	}
	allowed, err := j.may.of(ctx, string(question), func(ctx context.Context) (any, time.Duration, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: spec}
		if err := j.asker.create(ctx, j.asker.access, "subjectaccessreviews", review); err != nil {
			return false, 0, err
		}
		if review.Status.Allowed && !review.Status.Denied {
			return true, mayCounts, nil
		}
		return false, mayNot, nil
	})
	if err != nil {
		return false, err
	}
	return allowed.(bool), nil
}

// asker creates reviews.
type asker struct{ tokens, access rest.Interface }

func newAsker(config *rest.Config, client *http.Client) (*asker, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{authenticationv1.AddToScheme, authorizationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion()
	of := func(gv schema.GroupVersion) (rest.Interface, error) {
		c := rest.CopyConfig(config)
		c.GroupVersion, c.APIPath, c.NegotiatedSerializer = &gv, "/apis", codecs
		c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
		one, err := rest.RESTClientForConfigAndClient(c, client)
		if err != nil {
			return nil, fmt.Errorf("making the client of %s: %w", gv, err)
		}
		return one, nil
	}
	tokens, err := of(authenticationv1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	access, err := of(authorizationv1.SchemeGroupVersion)
	return &asker{tokens: tokens, access: access}, err
}

// create a review and read the answer into it. What may go by itself is tried again.
func (a *asker) create(ctx context.Context, of rest.Interface, resource string, review runtime.Object) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var last error
	again := wait.Backoff{Duration: askAgain, Factor: askSlower, Jitter: askVariance, Steps: askAtMost}
	err := wait.ExponentialBackoffWithContext(ctx, again, func(ctx context.Context) (done bool, err error) {
		last = of.Post().Resource(resource).Body(review).Do(ctx).Into(review)
		if last != nil && passing(last) {
			return false, nil
		}
		return true, last
	})
	if last != nil {
		return fmt.Errorf("creating %s: %w", resource, last)
	}
	return err
}

func passing(err error) bool {
	_, later := apierrors.SuggestsClientDelay(err)
	return later || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) ||
		apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}

// maxAnswers are remembered; the ones longest not asked for are forgotten.
const maxAnswers = 1024

// answers are remembered for as long as they count. The questions are not: tokens are secrets.
type answers struct {
	clock  clock.PassiveClock
	known  *lru.Cache
	asking singleflight.Group
	salt   []byte
}

type remembered struct {
	answer any
	until  time.Time
}

func newAnswers(clk clock.PassiveClock) *answers {
	salt := make([]byte, sha256.Size)
	_, _ = rand.Read(salt) // it never fails
	return &answers{clock: clk, known: lru.New(maxAnswers), salt: salt}
}

// of is the answer to a question; many who ask at once are answered at once. Ask says for how long its answer counts.
func (a *answers) of(ctx context.Context, question string, ask func(context.Context) (any, time.Duration, error)) (any, error) {
	mac := hmac.New(sha256.New, a.salt)
	mac.Write([]byte(question))
	key := string(mac.Sum(nil))
	if value, found := a.known.Get(key); found {
		if known := value.(remembered); a.clock.Now().Before(known.until) {
			return known.answer, nil
		}
	}
	answer, err, _ := a.asking.Do(key, func() (any, error) {
		answer, counts, err := ask(context.WithoutCancel(ctx)) // others may wait for it, too
		if err == nil && counts > 0 {
			a.known.Add(key, remembered{answer: answer, until: a.clock.Now().Add(counts)})
		}
		return answer, err
	})
	return answer, err
}
