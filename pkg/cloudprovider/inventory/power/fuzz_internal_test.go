package power

import (
	"net/url"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// Whatever a service answers, nothing of it makes the controller panic, or go elsewhere with its credentials.
func FuzzLinksStayWithTheService(f *testing.F) {
	for _, link := range []string{"/redfish/v1/Systems/1", "https://10.0.0.7/redfish/v1", "//elsewhere.example/x", "https://elsewhere.example", "..", "?a=b", "https://10.0.0.7@elsewhere.example/", "\x00", "x:y", ""} {
		f.Add(link)
	}
	s := &session{redfish: &redfish{endpoint: &url.URL{Scheme: "https", Host: "10.0.0.7"}}}
	f.Fuzz(func(t *testing.T, link string) {
		address, err := s.resolve(link)
		if err != nil {
			return
		}
		u, err := url.Parse(address)
		if err != nil || u.Scheme != "https" || u.Host != "10.0.0.7" || u.User != nil {
			t.Errorf("%q leads to %q, %v", link, address, err)
		}
	})
}

func FuzzAnswers(f *testing.F) {
	for _, body := range []string{`{"TaskState":"Running"}`, `{"TaskState":"Exception","Messages":[]}`, `{"PowerState":"On","Actions":{}}`, `{"error":{"@Message.ExtendedInfo":[{}]}}`, `[]`, `{`, ``} {
		f.Add(202, body, "3")
	}
	f.Fuzz(func(t *testing.T, status int, body, wait string) {
		a := &answer{status: status, body: []byte(body), header: map[string][]string{"Retry-After": {wait}}}
		if pause := retryAfter(a); pause < taskPoll || pause > 30*taskPoll {
			t.Errorf("Retry-After %q is a pause of %s", wait, pause)
		}
		_, _ = taskOver(a)
		s := &session{redfish: &redfish{password: "secret"}, token: "token"}
		_ = s.explain(a)
		system := computerSystem{}
		if a.into(&system) == nil {
			state, err := stateOf(&system)
			if state != v1alpha1.PowerOn && state != v1alpha1.PowerOff && state != v1alpha1.PowerUnknown || err != nil && state != v1alpha1.PowerUnknown {
				t.Errorf("state %q, error %v", state, err)
			}
		}
	})
}
