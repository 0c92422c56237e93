package power

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// link is a reference to another resource.
type link struct {
	ODataID string `json:"@odata.id"`
}

// root is the part of a ServiceRoot that we follow.
type root struct {
	Systems link
	Links   struct{ Sessions link }
}

// collection is any resource collection, or a page of it.
type collection struct {
	Members []link
	Next    string `json:"Members@odata.nextLink"`
}

// mostPages bounds how many pages of a collection are read.
const mostPages = 64

// computerSystem is the part of a ComputerSystem that we use.
type computerSystem struct {
	ODataID    string `json:"@odata.id"`
	ODataETag  string `json:"@odata.etag"`
	ID         string `json:"Id"`
	PowerState string
	Actions    struct {
		Reset resetAction `json:"#ComputerSystem.Reset"`
	}
}

// resetAction is how a reset is asked for. What is allowed stands beside the target, or in an ActionInfo.
type resetAction struct {
	Target     string   `json:"target"`
	Allowed    []string `json:"ResetType@Redfish.AllowableValues"`
	ActionInfo string   `json:"@Redfish.ActionInfo"`
}

// actionInfo lists what an action's parameters may be.
type actionInfo struct {
	Parameters []struct {
		Name            string
		AllowableValues []string
	}
}

// redfishError is the extended error of DSP0266.
type redfishError struct {
	Error struct {
		Message  string `json:"message"`
		Extended []struct {
			Message string
		} `json:"@Message.ExtendedInfo"`
	} `json:"error"`
}

// task is a long-running operation.
type task struct {
	TaskState string
	Messages  []struct{ Message string }
}

// session is one operation's conversation with a service.
type session struct {
	*redfish
	root  root
	token string // X-Auth-Token; empty with basic authentication
}

// withSession runs do between login and logout. A session that is left behind counts against the few that a service
// has, so it is closed however do ends.
func (r *redfish) withSession(ctx context.Context, do func(*session) error) error {
	s := &session{redfish: r}
	// The service root is the one resource that needs no credentials.
	if err := s.get(ctx, serviceRoot, &s.root); err != nil {
		return err
	}
	if r.auth != v1alpha1.RedfishSession {
		return do(s)
	}
	location, err := s.login(ctx)
	if err != nil {
		return err
	}
	defer s.logout(ctx, location)
	return do(s)
}

// logoutTimeout bounds closing a session.
const logoutTimeout = 5 * time.Second

func (s *session) login(ctx context.Context) (string, error) {
	sessions := cmp.Or(s.root.Links.Sessions.ODataID, serviceRoot+"SessionService/Sessions")
	credentials := map[string]string{"UserName": s.user, "Password": s.password}
	a, err := s.send(ctx, http.MethodPost, sessions, credentials, nil)
	if err != nil {
		return "", fmt.Errorf("opening a Redfish session: %w", err)
	}
	if s.token = a.header.Get("X-Auth-Token"); s.token == "" {
		return "", fmt.Errorf("%w: the service opened a session without X-Auth-Token; use auth Basic", ErrConfig)
	}
	return a.header.Get("Location"), nil
}

// logout closes the session. What became of the operation matters more than whether this succeeds: a service ends
// idle sessions itself.
func (s *session) logout(ctx context.Context, location string) {
	if location == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), logoutTimeout)
	defer cancel()
	_, _ = s.send(ctx, http.MethodDelete, location, nil, nil)
}

// computerSystem reads the one that the settings name, or the only one.
func (s *session) computerSystem(ctx context.Context) (*computerSystem, error) {
	members, err := s.members(ctx, cmp.Or(s.root.Systems.ODataID, serviceRoot+"Systems"))
	if err != nil {
		return nil, err
	}
	chosen, err := s.choose(members)
	if err != nil {
		return nil, err
	}
	a, err := s.send(ctx, http.MethodGet, chosen, nil, nil)
	if err != nil {
		return nil, err
	}
	system := &computerSystem{}
	if err := a.into(system); err != nil {
		return nil, err
	}
	system.ODataID = chosen
	system.ODataETag = cmp.Or(a.header.Get("ETag"), system.ODataETag)
	return system, nil
}

// members are those of a collection, on however many pages the service lists them.
func (s *session) members(ctx context.Context, target string) ([]link, error) {
	var out []link
	for range mostPages {
		page := collection{}
		if err := s.get(ctx, target, &page); err != nil {
			return nil, err
		}
		out = append(out, page.Members...)
		if page.Next == "" {
			return out, nil
		}
		target = page.Next
	}
	return nil, fmt.Errorf("%w: the service lists its ComputerSystems on more than %d pages", ErrConfig, mostPages)
}

func (s *session) choose(members []link) (string, error) {
	if s.system == "" {
		if len(members) != 1 {
			return "", fmt.Errorf("%w: the service has %d ComputerSystems; redfish.system must name one", ErrConfig, len(members))
		}
		return members[0].ODataID, nil
	}
	for _, m := range members {
		if path.Base(m.ODataID) == s.system {
			return m.ODataID, nil
		}
	}
	return "", fmt.Errorf("%w: the service has no ComputerSystem %q", ErrConfig, s.system)
}

// allowedResets is what the system says it allows; a service that says nothing is taken to allow what every one
// has to.
func (s *session) allowedResets(ctx context.Context, system *computerSystem) ([]string, error) {
	action := system.Actions.Reset
	if len(action.Allowed) > 0 || action.ActionInfo == "" {
		if len(action.Allowed) == 0 {
			return []string{"On", "ForceOff", "ForceRestart"}, nil
		}
		return action.Allowed, nil
	}
	info := actionInfo{}
	if err := s.get(ctx, action.ActionInfo, &info); err != nil {
		return nil, err
	}
	for _, p := range info.Parameters {
		if p.Name == "ResetType" {
			return p.AllowableValues, nil
		}
	}
	return nil, fmt.Errorf("%w: %s says nothing of ResetType", ErrConfig, action.ActionInfo)
}

// resetTo asks for the reset and waits for its task, where the service makes one. Where it asks for the version of
// the system that is meant, it is sent.
func (s *session) resetTo(ctx context.Context, system *computerSystem, resetType string) error {
	target := cmp.Or(system.Actions.Reset.Target, system.ODataID+"/Actions/ComputerSystem.Reset")
	body := map[string]string{"ResetType": resetType}
	a, err := s.send(ctx, http.MethodPost, target, body, nil)
	if wantsETag(a) && system.ODataETag != "" {
		a, err = s.send(ctx, http.MethodPost, target, body, http.Header{"If-Match": {system.ODataETag}})
	}
	if err != nil {
		return fmt.Errorf("asking for reset %s: %w", resetType, err)
	}
	if a.status == http.StatusAccepted && a.header.Get("Location") != "" {
		return s.await(ctx, a)
	}
	return nil
}

func wantsETag(a *answer) bool {
	return a != nil && (a.status == http.StatusPreconditionRequired || a.status == http.StatusPreconditionFailed)
}

// await polls a task monitor until the task is over or ctx is.
func (s *session) await(ctx context.Context, accepted *answer) error {
	monitor, wait := accepted.header.Get("Location"), retryAfter(accepted)
	for {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("waiting for task %s: %w", monitor, ctx.Err())
		case <-timer.C:
		}
		a, err := s.send(ctx, http.MethodGet, monitor, nil, nil)
		if err != nil {
			return err
		}
		over, err := taskOver(a)
		if over || err != nil {
			return err
		}
		wait = retryAfter(a)
	}
}

// taskOver reads a task monitor's answer: 202 while the task runs, and then what the operation answers; or the Task
// itself.
func taskOver(a *answer) (bool, error) {
	t := task{}
	_ = json.Unmarshal(a.body, &t) // the operation's own answer need not be a Task, or anything
	switch t.TaskState {
	case "Completed":
		return true, nil
	case "Exception", "Killed", "Cancelled", "Interrupted":
		message := t.TaskState
		if len(t.Messages) > 0 {
			message = t.Messages[0].Message
		}
		return true, fmt.Errorf("the task of the reset ended as %s: %.200s", t.TaskState, message)
	case "":
		return a.status != http.StatusAccepted, nil
	}
	return false, nil
}

func retryAfter(a *answer) time.Duration {
	seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
	if err != nil || seconds < 1 {
		return taskPoll
	}
	return time.Duration(min(seconds, 30)) * time.Second
}

func (s *session) get(ctx context.Context, target string, into any) error {
	a, err := s.send(ctx, http.MethodGet, target, nil, nil)
	if err != nil {
		return err
	}
	return a.into(into)
}

// send sends one request. For an answer that is no success it returns the answer and the error.
func (s *session) send(ctx context.Context, method, target string, body any, header http.Header) (*answer, error) {
	address, err := s.resolve(target)
	if err != nil {
		return nil, err
	}
	req, err := jsonRequest(ctx, method, address, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("OData-Version", "4.0")
	for name, values := range header {
		req.Header[name] = values
	}
	s.authenticate(req, target)
	a, err := roundTrip(s.client, req)
	if err != nil {
		return nil, err
	}
	if a.status/100 != 2 {
		return a, refused(req, a, s.explain(a))
	}
	return a, nil
}

func (s *session) authenticate(req *http.Request, target string) {
	switch {
	case s.token != "":
		req.Header.Set("X-Auth-Token", s.token)
	case s.auth != v1alpha1.RedfishSession && target != serviceRoot:
		req.SetBasicAuth(s.user, s.password)
	}
}

// resolve makes a link absolute. Links lead nowhere but to the service itself, whatever it says: credentials go
// along.
func (s *session) resolve(target string) (string, error) {
	reference, err := url.Parse(target)
	if err != nil {
		return "", fmt.Errorf("following a link of the service: %w", err)
	}
	if reference.Host != "" && reference.Host != s.endpoint.Host {
		return "", fmt.Errorf("%w: the service links to %q, which is not itself", ErrConfig, reference.Host)
	}
	return s.endpoint.ResolveReference(&url.URL{Path: reference.Path, RawQuery: reference.RawQuery}).String(), nil
}

// explain is what the service says of an error, without the password that a request may have been echoed with.
func (s *session) explain(a *answer) string {
	e := redfishError{}
	if a.into(&e) != nil {
		return ""
	}
	message := e.Error.Message
	if len(e.Error.Extended) > 0 {
		message = cmp.Or(e.Error.Extended[0].Message, message)
	}
	return redact(message, []string{s.password, s.token})
}
