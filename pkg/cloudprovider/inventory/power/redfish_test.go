package power_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
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
		"one on the third page":  {service: func(s *service) { s.systems, s.page = 6, 2 }, spec: []func(*v1alpha1.RedfishPower){func(r *v1alpha1.RedfishPower) { r.System = "437XR1138R2" }}, want: "On GracefulShutdown On ForceOff On ForceRestart"},
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
	for given, want := range map[string]power.State{"On": "On", "Off": "Off", "PoweringOn": "Unknown", "PoweringOff": "Unknown", "Paused": "Unknown"} {
		s := rackmount()
		s.state = given
		expect(t, newWorld(t, s).redfish(t), want)
	}
}

// A service that does not say whether the machine is on is not ready: nothing is switched, until it says so.
func TestRedfishWithoutAPowerState(t *testing.T) {
	for _, given := range []string{"", "on", "Standby"} {
		s := rackmount()
		s.state = given
		driver := newWorld(t, s).redfish(t)
		for what, do := range map[string]func() error{
			"state": func() error { _, err := driver.State(t.Context()); return err },
			"on":    func() error { return driver.On(t.Context()) },
			"off":   func() error { return driver.Off(t.Context(), true) },
		} {
			if err := do(); !errors.Is(err, power.ErrNoState) || power.Permanent(err) || !strings.Contains(err.Error(), "want On, Off, PoweringOn") {
				t.Errorf("%q, %s: %v", given, what, err)
			}
		}
		if len(s.resets) > 0 {
			t.Errorf("%q: resets %v", given, s.resets)
		}
		s.state = "Off"
		succeed(t, driver.On(t.Context()))
		expect(t, driver, v1alpha1.PowerOn)
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
		"several on pages":          {service: func(s *service) { s.systems, s.page = 3, 2 }, is: power.ErrConfig, want: "3 ComputerSystems; redfish.system must name one"},
		"pages without end":         {service: func(s *service) { s.endless = true }, is: power.ErrConfig, want: "on more than 64 pages"},
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

// Some services have a collection under a path with a slash at its end, and another one without it.
func TestRedfishThatRedirectsOnItsHost(t *testing.T) {
	s := rackmount()
	asked := map[string]int{}
	s.answer = func(w http.ResponseWriter, r *http.Request) bool {
		asked[r.Method+" "+r.URL.Path]++
		if r.URL.Path != "/redfish/v1/Systems" || r.URL.RawQuery != "" {
			return false
		}
		http.Redirect(w, r, "/redfish/v1/Systems?real", http.StatusPermanentRedirect)
		return true
	}
	if err := newWorld(t, s).redfish(t).On(t.Context()); err != nil || asked["GET /redfish/v1/Systems"] != 2 {
		t.Errorf("error %v, asked %v", err, asked)
	}
	s = rackmount()
	s.answer = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			http.Redirect(w, r, r.URL.Path+"?again", http.StatusTemporaryRedirect)
		}
		return r.Method == http.MethodPost
	}
	if err := newWorld(t, s).redfish(t).On(t.Context()); err == nil || !strings.Contains(err.Error(), "307") {
		t.Errorf("error %v: a reset is asked for once", err)
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
