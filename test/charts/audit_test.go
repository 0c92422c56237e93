package charts_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/mainspring-rt/mainspring/pkg/chart"
)

// Who the chart's pods are.
const (
	controllerUser = "system:serviceaccount:" + namespace + ":mainspring"
	hollowUser     = controllerUser + "-hollow"
)

// auditPolicy has the API server write down what they ask of it, and nothing else.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    users: ["` + controllerUser + `", "` + hollowUser + `", "` + agentUser + `"]
  - level: None
`

// auditDelay bounds how long the API server takes to write down a request that it has served.
const auditDelay = 30 * time.Second

// audit is the API server's log of requests.
type audit struct{ log string }

func newAudit(t *testing.T) (audit, []string) {
	t.Helper()
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	a := audit{filepath.Join(dir, "audit.log")}
	return a, []string{"--audit-policy-file=" + policy, "--audit-log-path=" + a.log}
}

// right is what one rule allows, taken apart; namespace is empty where it allows it everywhere.
type right struct{ verb, group, resource, namespace string }

func (r right) String() string {
	s := fmt.Sprintf("%s %s", r.verb, strings.TrimSuffix(r.resource+"."+r.group, "."))
	if r.namespace != "" {
		s += " in " + r.namespace
	}
	return s
}

// expectRights expects that the API server has refused the user nothing, and that the user has needed each right
// that it is granted, but for those that are justified otherwise. The API server may write a request down after
// the change that the request made can be seen, so the log is read until it shows them all.
func (a audit) expectRights(t *testing.T, user string, granted []right, justified map[right]string) {
	t.Helper()
	gomega.NewWithT(t).Eventually(func() (unneeded []right) {
		used, _ := a.used(t, user)
		for _, r := range granted {
			if _, ok := justified[r]; !used[r] && !ok && !streamed(r, used) {
				unneeded = append(unneeded, r)
			}
		}
		return unneeded
	}).WithTimeout(auditDelay).WithPolling(pollEvery).Should(gomega.BeEmpty(), "rights that %s did not need", user)
	_, refused := a.used(t, user)
	for _, request := range refused {
		t.Errorf("the API server refused %s: %s", user, request)
	}
}

// used returns the rights that requests of the user have needed, for their namespace and for everywhere, and
// the requests that were refused.
func (a audit) used(t *testing.T, user string) (rights map[right]bool, refused []string) {
	t.Helper()
	file, err := os.Open(a.log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rights = map[right]bool{}
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var event struct {
			User struct {
				Name string `json:"username"`
			} `json:"user"`
			Verb   string `json:"verb"`
			URI    string `json:"requestURI"`
			Object *struct {
				Resource    string `json:"resource"`
				Subresource string `json:"subresource"`
				Group       string `json:"apiGroup"`
				Namespace   string `json:"namespace"`
			} `json:"objectRef"`
			Status struct {
				Code int `json:"code"`
			} `json:"responseStatus"`
		}
		if err := json.Unmarshal(scanner.Bytes(), &event); err != nil {
			continue // the last line may not be complete yet
		}
		if event.User.Name != user {
			continue
		}
		if event.Status.Code == 403 {
			refused = append(refused, event.Verb+" "+event.URI)
		}
		if o := event.Object; o != nil {
			resource := strings.TrimSuffix(o.Resource+"/"+o.Subresource, "/")
			rights[right{event.Verb, o.Group, resource, o.Namespace}] = true
			rights[right{event.Verb, o.Group, resource, ""}] = true
		}
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	return rights, refused
}

// granted takes the rules of the user's roles apart.
func granted(t *testing.T, manifests chart.Manifests, user string) []right {
	t.Helper()
	var rights []right
	for _, r := range roles(t, manifests) {
		if agents := strings.HasSuffix(r.name, "-hollow"); agents != (user == hollowUser) {
			continue
		}
		if strings.HasSuffix(r.name, "-agent") { // no node agent runs here
			continue
		}
		rights = append(rights, taken(r)...)
	}
	return rights
}

// taken takes a role's rules apart.
func taken(r role) []right {
	var rights []right
	for _, rule := range r.rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					rights = append(rights, right{verb, group, resource, r.namespace})
				}
			}
		}
	}
	return rights
}
