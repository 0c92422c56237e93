package frontdoor_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mainspring-rt/mainspring/pkg/frontdoor"
)

// reviewer is an API server that reviews: tokens that begin with "of-" are of the user behind that, who may GET /may.
type reviewer struct {
	mu     sync.Mutex
	asked  map[string]int // by resource
	groups []string       // of whom was asked last
	fail   int            // so many more reviews with an internal error
	denied bool           // by one authorizer, though another allows
}

func (v *reviewer) RoundTrip(r *http.Request) (*http.Response, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	v.asked[resource]++
	code, answer := http.StatusCreated, any(nil)
	switch {
	case v.fail > 0:
		v.fail--
		code, answer = http.StatusInternalServerError, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "InternalError", "code": code}
	case resource == "tokenreviews":
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			return nil, err
		}
		user, known := strings.CutPrefix(review.Spec.Token, "of-")
		review.Status.Authenticated, review.Status.User.Username = known, user
		answer = review
	default:
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			return nil, err
		}
		v.groups = review.Spec.Groups
		what := review.Spec.NonResourceAttributes
		review.Status.Allowed, review.Status.Denied = what.Path == "/may" && what.Verb == "get" && review.Spec.User != "", v.denied
		answer = review
	}
	body, err := json.Marshal(answer)
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, err
}

// Answers count for as long as is documented, refused tokens not at all.
func TestHowLongAnswersCount(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Now())
	api := &reviewer{asked: map[string]int{}}
	judge, err := frontdoor.NewJudge(&rest.Config{Host: "http://localhost"}, &http.Client{Transport: api}, clk)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		after          time.Duration
		token, path    string
		code           int
		tokens, access int // reviews that this takes
	}{
		{0, "", "/may", 401, 0, 0},
		{0, "Basic of-a", "/may", 401, 0, 0},
		{0, "Bearer nobody", "/may", 401, 1, 0},
		{0, "Bearer nobody", "/may", 401, 1, 0},
		{0, "Bearer of-a", "/may", 0, 1, 1},
		{59 * time.Second, "bearer of-a", "/may", 0, 0, 0},
		{0, "Bearer of-b", "/may", 0, 1, 1},
		{time.Second, "Bearer of-a", "/may", 0, 1, 0},
		{0, "Bearer of-a", "/else", 403, 0, 1},
		{29 * time.Second, "Bearer of-a", "/else", 403, 0, 0},
		{time.Second, "Bearer of-a", "/else", 403, 0, 1},
		{4 * time.Minute, "Bearer of-a", "/may", 0, 1, 1},
	} {
		clk.SetTime(clk.Now().Add(c.after))
		clear(api.asked)
		request := httptest.NewRequest(http.MethodGet, c.path, nil)
		request.Header.Set("Authorization", c.token)
		err, code := judge.Judge(request), 0
		if problem := (*frontdoor.Problem)(nil); errors.As(err, &problem) {
			code = problem.Code
		}
		if code != c.code || api.asked["tokenreviews"] != c.tokens || api.asked["subjectaccessreviews"] != c.access {
			t.Errorf("%d: %v with %v reviews; want %+v", i, err, api.asked, c)
		}
		if code == 0 && request.Header.Get("Authorization") != "" {
			t.Errorf("%d: the token is handed on", i)
		}
	}
	if !slices.Contains(api.groups, "system:authenticated") {
		t.Errorf("groups %v; want all that the API server would give", api.groups)
	}
}

func TestWhoIsDeniedMayNot(t *testing.T) {
	api := &reviewer{asked: map[string]int{}, denied: true}
	judge, err := frontdoor.NewJudge(&rest.Config{Host: "http://localhost"}, &http.Client{Transport: api}, clocktesting.NewFakePassiveClock(time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequest(http.MethodGet, "/may", nil)
	request.Header.Set("Authorization", "Bearer of-a")
	if err := judge.Judge(request); err == nil || !strings.Contains(err.Error(), "a may not get /may") {
		t.Errorf("%v; want a refusal", err)
	}
}

func TestWhatGoesByItselfIsAskedAgain(t *testing.T) {
	api := &reviewer{asked: map[string]int{}, fail: 1}
	judge, err := frontdoor.NewJudge(&rest.Config{Host: "http://localhost"}, &http.Client{Transport: api}, clocktesting.NewFakePassiveClock(time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequest(http.MethodGet, "/may", nil)
	request.Header.Set("Authorization", "Bearer of-a")
	if err := judge.Judge(request); err != nil || api.asked["tokenreviews"] != 2 {
		t.Errorf("%v with %v reviews; want two of the token", err, api.asked)
	}
}
