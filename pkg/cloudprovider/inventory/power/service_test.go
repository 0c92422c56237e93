package power_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/inventory/power"
)

// service is a Redfish service with one ComputerSystem. Its answers are written by hand in the shape of those of DMTF's public mockup of
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
	page       int      // how many of them on a page; 0: all
	endless    bool     // each page names a next one
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

// list answers with a page of a collection.
func (s *service) list(w http.ResponseWriter, r *http.Request, members []any) {
	answer := map[string]any{"@odata.id": r.URL.Path, "Members@odata.count": len(members)}
	skip, _ := strconv.Atoi(r.URL.Query().Get("$skip"))
	end := len(members)
	if s.page > 0 {
		end = min(end, skip+s.page)
	}
	answer["Members"] = members[min(skip, end):end]
	if end < len(members) || s.endless {
		answer["Members@odata.nextLink"] = fmt.Sprintf("%s?$skip=%d", r.URL.Path, end)
	}
	reply(w, 200, answer)
}

func (s *service) serve(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == sessions+"/1" && r.Method == http.MethodDelete:
		s.open--
		w.WriteHeader(204)
	case r.URL.Path == "/redfish/v1/Systems":
		var members []any
		for i := 1; i < s.systems; i++ {
			members = append(members, link(fmt.Sprintf("/redfish/v1/Systems/blade-%d/", i)))
		}
		s.list(w, r, append(members, link(system)))
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

func rackmount() *service {
	return &service{state: "Off", systems: 1, allowed: []string{
		"On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "Nmi", "ForceOn", "PushPowerButton",
	}}
}
