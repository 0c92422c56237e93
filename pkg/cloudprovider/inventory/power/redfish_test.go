package power_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/inventory/power"
)

const (
	user     = "mainspring"
	password = "correct horse battery staple"
	system   = "/redfish/v1/Systems/437XR1138R2"
	reset    = system + "/Actions/ComputerSystem.Reset"
	sessions = "/redfish/v1/SessionService/Sessions"
)

// service is a Redfish service with one ComputerSystem. Its answers have the shape of those of DMTF's public mockup of
// a rack-mounted server (DSP2043, public-rackmount1), and it keeps to the protocol of DSP0266 where the mockup has no
// behaviour: authentication, actions, tasks, entity tags.
type service struct {
	mu sync.Mutex
	// how it is built
	allowed    []string // where nil, the action says nothing
	actionInfo bool     // allowed stands in an ActionInfo
	wantETag   int      // status of a reset without If-Match; 0: not asked for
	tasks      []string // a reset is a task that goes through these states
	systems    int      // how many ComputerSystems
	answer     func(w http.ResponseWriter, r *http.Request) bool
	// what happens
	state  string
	resets []string
	open   int // sessions
	opened int
	asked  int
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.answer != nil && s.answer(w, r) {
		return
	}
	w.Header().Set("OData-Version", "4.0")
	if r.URL.Path == "/redfish/v1/" {
		reply(w, 200, map[string]any{
			"@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot", "@odata.id": "/redfish/v1/", "Id": "RootService", "RedfishVersion": "1.15.0",
			"Systems": link("/redfish/v1/Systems"), "SessionService": link("/redfish/v1/SessionService"),
			"Tasks": link("/redfish/v1/TaskService"), "Links": map[string]any{"Sessions": link(sessions)},
		})
		return
	}
	if r.URL.Path == sessions && r.Method == http.MethodPost {
		s.login(w, r)
		return
	}
	if !s.known(r) {
		refuse(w, 401, "Base.1.18.NoValidSession", "There is no valid session established with the implementation.")
		return
	}
	s.serve(w, r)
}

func (s *service) known(r *http.Request) bool {
	u, p, _ := r.BasicAuth()
	return u == user && p == password || s.open > 0 && r.Header.Get("X-Auth-Token") == "token-1"
}

func (s *service) login(w http.ResponseWriter, r *http.Request) {
	given := map[string]string{}
	_ = json.NewDecoder(r.Body).Decode(&given)
	if given["UserName"] != user || given["Password"] != password {
		// Some services repeat what they were sent.
		refuse(w, 401, "Base.1.18.ResourceAtUriUnauthorized", "The credentials "+given["Password"]+" are not valid.")
		return
	}
	s.open++
	s.opened++
	w.Header().Set("X-Auth-Token", "token-1")
	w.Header().Set("Location", sessions+"/1")
	reply(w, 201, map[string]any{"@odata.type": "#Session.v1_7_0.Session", "@odata.id": sessions + "/1", "Id": "1", "UserName": user})
}

func (s *service) serve(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == sessions+"/1" && r.Method == http.MethodDelete:
		s.open--
		w.WriteHeader(204)
	case r.URL.Path == "/redfish/v1/Systems":
		members := []any{link(system)}
		for i := 1; i < s.systems; i++ {
			members = append(members, link(fmt.Sprintf("/redfish/v1/Systems/blade-%d/", i)))
		}
		reply(w, 200, map[string]any{"@odata.id": r.URL.Path, "Members@odata.count": len(members), "Members": members})
	case r.URL.Path == system && r.Method == http.MethodGet:
		w.Header().Set("ETag", `"W/A1"`)
		reply(w, 200, s.computerSystem())
	case r.URL.Path == system+"/ResetActionInfo":
		reply(w, 200, map[string]any{"@odata.type": "#ActionInfo.v1_4_0.ActionInfo", "Id": "ResetActionInfo", "Parameters": []any{
			map[string]any{"Name": "ResetType", "Required": true, "DataType": "String", "AllowableValues": s.allowed},
		}})
	case r.URL.Path == reset && r.Method == http.MethodPost:
		s.reset(w, r)
	case r.URL.Path == "/redfish/v1/TaskService/TaskMonitors/545":
		s.monitor(w)
	default:
		refuse(w, 404, "Base.1.18.ResourceMissingAtURI", "The resource at the URI "+r.URL.Path+" was not found.")
	}
}

func (s *service) computerSystem() map[string]any {
	action := map[string]any{"target": reset}
	switch {
	case s.actionInfo:
		action["@Redfish.ActionInfo"] = system + "/ResetActionInfo"
	case s.allowed != nil:
		action["ResetType@Redfish.AllowableValues"] = s.allowed
	}
	return map[string]any{
		"@odata.type": "#ComputerSystem.v1_22_0.ComputerSystem", "@odata.id": system, "Id": "437XR1138R2", "Name": "WebFrontEnd483",
		"SystemType": "Physical", "PowerState": s.state, "Status": map[string]any{"State": "Enabled", "Health": "OK"},
		"BootProgress": map[string]any{"LastState": "OSRunning"},
		"Actions":      map[string]any{"#ComputerSystem.Reset": action, "Oem": map[string]any{}},
	}
}

func (s *service) reset(w http.ResponseWriter, r *http.Request) {
	if s.wantETag != 0 && r.Header.Get("If-Match") != `"W/A1"` {
		refuse(w, s.wantETag, "Base.1.18.PreconditionFailed", "The ETag supplied did not match the current ETag of the resource.")
		return
	}
	given := map[string]string{}
	_ = json.NewDecoder(r.Body).Decode(&given)
	if s.allowed != nil && !slices.Contains(s.allowed, given["ResetType"]) {
		refuse(w, 400, "Base.1.18.ActionParameterNotSupported", "The parameter ResetType is not supported.")
		return
	}
	s.resets = append(s.resets, given["ResetType"])
	switch given["ResetType"] {
	case "On", "ForceOn", "ForceRestart", "PowerCycle", "GracefulRestart":
		s.state = "On"
	case "PushPowerButton":
		s.state = map[string]string{"On": "Off", "Off": "On"}[s.state]
	default:
		s.state = "Off"
	}
	if s.tasks != nil {
		w.Header().Set("Location", "/redfish/v1/TaskService/TaskMonitors/545")
		reply(w, 202, map[string]any{"@odata.type": "#Task.v1_7_3.Task", "@odata.id": "/redfish/v1/TaskService/Tasks/545", "Id": "545", "TaskState": "New"})
		return
	}
	w.WriteHeader(204)
}

func (s *service) monitor(w http.ResponseWriter) {
	state := s.tasks[0]
	s.tasks = s.tasks[1:]
	status := 202
	if state == "Completed" || state == "Exception" {
		status = 200
	}
	if state == "" { // what the operation itself answers
		w.WriteHeader(204)
		return
	}
	reply(w, status, map[string]any{"Id": "545", "TaskState": state, "TaskStatus": "OK", "Messages": []any{
		map[string]any{"MessageId": "Base.1.18.InternalError", "Message": "The request failed due to an internal service error."},
	}})
}

func link(path string) map[string]any { return map[string]any{"@odata.id": path} }

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func refuse(w http.ResponseWriter, status int, id, message string) {
	reply(w, status, map[string]any{"error": map[string]any{
		"code": "Base.1.18.GeneralError", "message": "A general error has occurred. See ExtendedInfo for more information.",
		"@Message.ExtendedInfo": []any{map[string]any{"@odata.type": "#Message.v1_2_1.Message", "MessageId": id, "Message": message, "MessageSeverity": "Critical"}},
	}})
}

// world is a service with the Secrets to use it.
type world struct {
	server  *httptest.Server
	secrets map[string]map[string][]byte
}

func newWorld(t *testing.T, handler http.Handler) *world {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that hang up are the test
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &world{server: server, secrets: map[string]map[string][]byte{
		"bmc":   {"username": []byte(user), "password": []byte(password)},
		"wrong": {"username": []byte(user), "password": []byte("hunter2-and-more")},
		"half":  {"username": []byte(user)},
		"ca":    {"ca.crt": ca},
		"token": {"token": []byte("tok-secret")},
	}}
}

func (w *world) read(_ context.Context, name string) (map[string][]byte, error) {
	data, ok := w.secrets[name]
	if !ok {
		return nil, fmt.Errorf("%w: there is no Secret %q", power.ErrConfig, name)
	}
	return data, nil
}

func (w *world) dial(t *testing.T, spec v1alpha1.MachinePower) (power.Driver, error) {
	t.Helper()
	return power.Dialer{Secrets: w.read}.Dial(t.Context(), "edge-1", spec)
}

func (w *world) redfish(t *testing.T, changes ...func(*v1alpha1.RedfishPower)) power.Driver {
	t.Helper()
	spec := &v1alpha1.RedfishPower{Endpoint: w.server.URL, Credentials: v1alpha1.SecretRef{Name: "bmc"}, CA: &v1alpha1.SecretRef{Name: "ca"}}
	for _, change := range changes {
		change(spec)
	}
	driver, err := w.dial(t, v1alpha1.MachinePower{Redfish: spec})
	if err != nil {
		t.Fatal(err)
	}
	return driver
}

func session(spec *v1alpha1.RedfishPower) { spec.Auth = v1alpha1.RedfishSession }

func rackmount() *service {
	return &service{state: "Off", systems: 1, allowed: []string{
		"On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "Nmi", "ForceOn", "PushPowerButton",
	}}
}

func TestRedfishSwitches(t *testing.T) {
	for name, tc := range map[string]struct {
		service func(*service)
		spec    []func(*v1alpha1.RedfishPower)
		want    string // of the resets on, off, off by force, on, restart
	}{
		"basic":                  {want: "On GracefulShutdown On ForceOff On ForceRestart"},
		"session":                {spec: []func(*v1alpha1.RedfishPower){session}, want: "On GracefulShutdown On ForceOff On ForceRestart"},
		"ActionInfo":             {service: func(s *service) { s.actionInfo = true }, want: "On GracefulShutdown On ForceOff On ForceRestart"},
		"nothing said":           {service: func(s *service) { s.allowed = nil }, want: "On ForceOff On ForceOff On ForceRestart"},
		"no graceful shutdown":   {service: func(s *service) { s.allowed = []string{"ForceOn", "ForceOff", "PowerCycle"} }, want: "ForceOn ForceOff ForceOn ForceOff ForceOn PowerCycle"},
		"a button only":          {service: func(s *service) { s.allowed = []string{"PushPowerButton", "ForceOff", "ForceRestart"} }, want: "PushPowerButton ForceOff PushPowerButton ForceOff PushPowerButton ForceRestart"},
		"entity tag, 428":        {service: func(s *service) { s.wantETag = 428 }, want: "On GracefulShutdown On ForceOff On ForceRestart"},
		"entity tag, 412":        {service: func(s *service) { s.wantETag = 412 }, want: "On GracefulShutdown On ForceOff On ForceRestart"},
		"one of several systems": {service: func(s *service) { s.systems = 3 }, spec: []func(*v1alpha1.RedfishPower){func(r *v1alpha1.RedfishPower) { r.System = "437XR1138R2" }}, want: "On GracefulShutdown On ForceOff On ForceRestart"},
	} {
		t.Run(name, func(t *testing.T) {
			s := rackmount()
			if tc.service != nil {
				tc.service(s)
			}
			driver := newWorld(t, s).redfish(t, tc.spec...)
			expect(t, driver, v1alpha1.PowerOff)
			succeed(t, driver.On(t.Context()), driver.On(t.Context())) // the second changes nothing
			expect(t, driver, v1alpha1.PowerOn)
			succeed(t, driver.Off(t.Context(), false), driver.Off(t.Context(), false))
			expect(t, driver, v1alpha1.PowerOff)
			succeed(t, driver.On(t.Context()), driver.Off(t.Context(), true))
			expect(t, driver, v1alpha1.PowerOff)
			succeed(t, driver.On(t.Context()), driver.Restart(t.Context()))
			if got := strings.Join(s.resets, " "); got != tc.want {
				t.Errorf("resets %s\nwant   %s", got, tc.want)
			}
			if s.open != 0 {
				t.Errorf("%d sessions of %d are left open", s.open, s.opened)
			}
		})
	}
}

func TestRedfishTasks(t *testing.T) {
	for name, tc := range map[string]struct {
		states []string
		want   string
	}{
		"completed":           {[]string{"Running", "Completed"}, ""},
		"the answer itself":   {[]string{"Running", ""}, ""},
		"exception":           {[]string{"Exception"}, "internal service error"},
		"gone with its error": {[]string{"Running", "Exception"}, "Exception"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := rackmount()
			s.tasks = tc.states
			err := newWorld(t, s).redfish(t).On(t.Context())
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) || power.Permanent(err) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestRedfishTaskThatDoesNotEnd(t *testing.T) {
	s := rackmount()
	s.tasks = slices.Repeat([]string{"Running"}, 100)
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	if err := newWorld(t, s).redfish(t, session).On(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if s.open != 0 {
		t.Error("the session is left open")
	}
}

func TestRedfishStatesOnTheWay(t *testing.T) {
	for given, want := range map[string]power.State{"On": "On", "Off": "Off", "PoweringOn": "Unknown", "PoweringOff": "Unknown", "Paused": "Unknown", "": "Unknown"} {
		s := rackmount()
		s.state = given
		expect(t, newWorld(t, s).redfish(t), want)
	}
}

// A button that is pushed on the way would end what is under way.
func TestRedfishPushesNoButtonOnTheWay(t *testing.T) {
	s := rackmount()
	s.state, s.allowed = "PoweringOn", []string{"PushPowerButton"}
	if err := newWorld(t, s).redfish(t).On(t.Context()); err == nil || len(s.resets) != 0 {
		t.Errorf("resets %v, error %v", s.resets, err)
	}
}

func TestRedfishErrors(t *testing.T) {
	status := func(path string, code int) func(w http.ResponseWriter, r *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != path {
				return false
			}
			refuse(w, code, "Base.1.18.GeneralError", "no")
			return true
		}
	}
	for name, tc := range map[string]struct {
		service func(*service)
		spec    func(*v1alpha1.RedfishPower)
		is      error // nil: trying again may help
		want    string
	}{
		"wrong password":            {spec: func(r *v1alpha1.RedfishPower) { r.Credentials.Name = "wrong" }, is: power.ErrCredentials, want: "401"},
		"wrong password, session":   {spec: func(r *v1alpha1.RedfishPower) { r.Credentials.Name = "wrong"; session(r) }, is: power.ErrCredentials, want: "are not valid"},
		"may not reset":             {service: func(s *service) { s.answer = status(reset, 403) }, is: power.ErrCredentials, want: "403"},
		"several systems":           {service: func(s *service) { s.systems = 2 }, is: power.ErrConfig, want: "2 ComputerSystems; redfish.system must name one"},
		"no such system":            {spec: func(r *v1alpha1.RedfishPower) { r.System = "x" }, is: power.ErrConfig, want: `no ComputerSystem "x"`},
		"no Redfish":                {service: func(s *service) { s.answer = status("/redfish/v1/", 404) }, is: power.ErrConfig, want: "404"},
		"nothing of use is allowed": {service: func(s *service) { s.allowed = []string{"Nmi"} }, is: power.ErrConfig, want: "allows the resets Nmi, and none of On"},
		"busy":                      {service: func(s *service) { s.answer = status(reset, 503) }, want: "503"},
		"conflict":                  {service: func(s *service) { s.answer = status(reset, 409) }, want: "409"},
		"internal error":            {service: func(s *service) { s.answer = status(system, 500) }, want: "500"},
		"unknown certificate":       {spec: func(r *v1alpha1.RedfishPower) { r.CA = nil }, is: power.ErrConfig, want: "certificate"},
		"no JSON": {service: func(s *service) {
			s.answer = func(w http.ResponseWriter, _ *http.Request) bool { _, _ = io.WriteString(w, "<html>"); return true }
		}, want: "decoding"},
		"a redirect elsewhere": {service: func(s *service) {
			s.answer = func(w http.ResponseWriter, r *http.Request) bool {
				http.Redirect(w, r, "https://elsewhere.example/", http.StatusFound)
				return true
			}
		}, want: "302"},
		"a link elsewhere": {service: func(s *service) {
			s.answer = func(w http.ResponseWriter, r *http.Request) bool {
				reply(w, 200, map[string]any{"Systems": link("https://elsewhere.example/redfish/v1/Systems")})
				return true
			}
		}, is: power.ErrConfig, want: `links to "elsewhere.example", which is not itself`},
	} {
		t.Run(name, func(t *testing.T) {
			s := rackmount()
			if tc.service != nil {
				tc.service(s)
			}
			var changes []func(*v1alpha1.RedfishPower)
			if tc.spec != nil {
				changes = append(changes, tc.spec)
			}
			err := newWorld(t, s).redfish(t, changes...).On(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %v, want %q", err, tc.want)
			}
			if tc.is != nil && !errors.Is(err, tc.is) || tc.is == nil && power.Permanent(err) {
				t.Errorf("error %v, want %v", err, tc.is)
			}
			for _, secret := range []string{password, "hunter2-and-more"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%v tells the password", err)
				}
			}
		})
	}
}

func TestRedfishThatHangs(t *testing.T) {
	hangs := make(chan struct{})
	t.Cleanup(func() { close(hangs) })
	w := newWorld(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hangs:
		case <-r.Context().Done():
		}
	}))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := w.redfish(t).State(ctx); !errors.Is(err, context.DeadlineExceeded) || power.Permanent(err) {
		t.Errorf("error %v", err)
	}
}

func TestDialRefuses(t *testing.T) {
	w := newWorld(t, rackmount())
	ref := func(name string) *v1alpha1.SecretRef { return &v1alpha1.SecretRef{Name: name} }
	for name, tc := range map[string]struct {
		spec v1alpha1.MachinePower
		want string
	}{
		"no driver":      {v1alpha1.MachinePower{}, "must name one of"},
		"plain HTTP":     {v1alpha1.MachinePower{Redfish: &v1alpha1.RedfishPower{Endpoint: "http://10.0.0.1", Credentials: *ref("bmc")}}, "redfish.endpoint"},
		"no Secret":      {v1alpha1.MachinePower{Redfish: &v1alpha1.RedfishPower{Endpoint: w.server.URL, Credentials: *ref("none")}}, `"none"`},
		"half a Secret":  {v1alpha1.MachinePower{Redfish: &v1alpha1.RedfishPower{Endpoint: w.server.URL, Credentials: *ref("half")}}, `Secret "half" has no key password`},
		"no CA in there": {v1alpha1.MachinePower{Redfish: &v1alpha1.RedfishPower{Endpoint: w.server.URL, Credentials: *ref("bmc"), CA: ref("bmc")}}, "no key ca.crt"},
		"no token":       {v1alpha1.MachinePower{Webhook: &v1alpha1.WebhookPower{URL: w.server.URL, Token: ref("bmc")}}, "no key token"},
		"no programs":    {v1alpha1.MachinePower{Exec: &v1alpha1.ExecPower{Command: "x"}}, "--inventory-exec-directory"},
		"no MAC":         {v1alpha1.MachinePower{Webhook: &v1alpha1.WebhookPower{URL: w.server.URL}, WakeOnLAN: &v1alpha1.WakeOnLANPower{MAC: "02:00:5e"}}, "wakeOnLAN.mac"},
	} {
		if _, err := w.dial(t, tc.spec); !errors.Is(err, power.ErrConfig) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", name, err, tc.want)
		}
	}
}

func expect(t *testing.T, driver power.Driver, want power.State) {
	t.Helper()
	if state, err := driver.State(t.Context()); err != nil || state != want {
		t.Errorf("state %s, %v, want %s", state, err, want)
	}
}

func succeed(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}
