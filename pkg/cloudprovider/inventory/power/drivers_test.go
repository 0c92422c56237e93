package power_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/inventory/power"
)

// outlet is a web service that switches.
type outlet struct {
	state   string
	status  int // of every answer; 0: as it should be
	actions []string
	header  http.Header
}

func (o *outlet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.header = r.Header
	if o.status != 0 {
		w.WriteHeader(o.status)
		_, _ = w.Write([]byte("refusing " + r.Header.Get("Authorization")))
		return
	}
	asked := struct{ Action, Machine string }{}
	_ = json.NewDecoder(r.Body).Decode(&asked)
	o.actions = append(o.actions, asked.Machine+" "+asked.Action)
	switch asked.Action {
	case "on", "restart":
		o.state = "on"
	case "off":
		o.state = "off"
	}
	reply(w, 200, map[string]any{"power": o.state})
}

func (w *world) webhook(t *testing.T, more v1alpha1.MachinePower) power.Driver {
	t.Helper()
	more.Webhook = &v1alpha1.WebhookPower{URL: w.server.URL + "/outlets/7", Token: &v1alpha1.SecretRef{Name: "token"}, CA: &v1alpha1.SecretRef{Name: "ca"}}
	driver, err := w.dial(t, more)
	if err != nil {
		t.Fatal(err)
	}
	return driver
}

func TestWebhookSwitches(t *testing.T) {
	o := &outlet{state: "off"}
	driver := newWorld(t, o).webhook(t, v1alpha1.MachinePower{})
	expect(t, driver, v1alpha1.PowerOff)
	succeed(t, driver.On(t.Context()), driver.Restart(t.Context()))
	expect(t, driver, v1alpha1.PowerOn)
	succeed(t, driver.Off(t.Context(), true))
	if got, want := strings.Join(o.actions, ","), "edge-1 status,edge-1 on,edge-1 restart,edge-1 status,edge-1 off"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	if o.header.Get("Authorization") != "Bearer tok-secret" || o.header.Get("Content-Type") != "application/json" {
		t.Errorf("header %v", o.header)
	}
}

func TestWebhookErrors(t *testing.T) {
	for status, is := range map[int]error{401: power.ErrCredentials, 403: power.ErrCredentials, 404: power.ErrConfig, 500: nil, 302: nil, 429: nil} {
		err := newWorld(t, &outlet{status: status}).webhook(t, v1alpha1.MachinePower{}).On(t.Context())
		if err == nil || is != nil && !errors.Is(err, is) || is == nil && power.Permanent(err) {
			t.Errorf("%d: error %v, want %v", status, err, is)
		}
		if strings.Contains(err.Error(), "tok-secret") {
			t.Errorf("%v tells the token", err)
		}
	}
	if _, err := newWorld(t, &outlet{state: "perhaps"}).webhook(t, v1alpha1.MachinePower{}).State(t.Context()); !errors.Is(err, power.ErrConfig) {
		t.Errorf("error %v", err)
	}
}

func TestWakeOnLANWakes(t *testing.T) {
	listener, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	o := &outlet{state: "off"}
	driver := newWorld(t, o).webhook(t, v1alpha1.MachinePower{WakeOnLAN: &v1alpha1.WakeOnLANPower{
		MAC: "02:00:5E:10:00:07", Address: "127.0.0.1", Port: int32(listener.LocalAddr().(*net.UDPAddr).Port),
	}})
	succeed(t, driver.On(t.Context()), listener.SetReadDeadline(time.Now().Add(10*time.Second)))
	packet := make([]byte, 200)
	n, _, err := listener.ReadFrom(packet)
	if err != nil {
		t.Fatal(err)
	}
	want := append(bytes.Repeat([]byte{0xff}, 6), bytes.Repeat([]byte{0x02, 0x00, 0x5e, 0x10, 0x00, 0x07}, 16)...)
	if !bytes.Equal(packet[:n], want) || n != 102 {
		t.Errorf("packet %x", packet[:n])
	}
	// The other driver does the rest.
	succeed(t, driver.Off(t.Context(), false))
	if got := strings.Join(o.actions, ","); got != "edge-1 off" {
		t.Errorf("asked %s", got)
	}
}

// programs is a directory of programs that may be run.
func programs(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func program(t *testing.T, dir string, spec v1alpha1.ExecPower) (power.Driver, error) {
	t.Helper()
	secrets := func(context.Context, string) (map[string][]byte, error) {
		return map[string][]byte{"IPMI_PASSWORD": []byte("s3cret-value")}, nil
	}
	return power.Dialer{Secrets: secrets, ExecDirectory: dir}.Dial(t.Context(), "edge-1", v1alpha1.MachinePower{Exec: &spec})
}

func TestExecSwitches(t *testing.T) {
	t.Setenv("OF_THE_CONTROLLER", "must not be inherited")
	dir := programs(t, map[string]string{"switch": `echo "$@ $IPMI_PASSWORD $OF_THE_CONTROLLER." >> "$3/calls"; case $1 in on|restart) echo on > "$3/state";; off) echo off > "$3/state";; status) cat "$3/state";; esac`})
	states := t.TempDir()
	driver, err := program(t, dir, v1alpha1.ExecPower{Command: "switch", Args: []string{states, "a b;c"}, Secret: &v1alpha1.SecretRef{Name: "ipmi"}})
	if err != nil {
		t.Fatal(err)
	}
	succeed(t, driver.Off(t.Context(), false))
	expect(t, driver, v1alpha1.PowerOff)
	succeed(t, driver.On(t.Context()))
	expect(t, driver, v1alpha1.PowerOn)
	succeed(t, driver.Restart(t.Context()))
	calls, err := os.ReadFile(filepath.Join(states, "calls"))
	first, _, _ := strings.Cut(string(calls), "\n")
	if want := "off edge-1 " + states + " a b;c s3cret-value ."; err != nil || first != want {
		t.Errorf("called with %q, want %q", first, want)
	}
}

func TestExecErrors(t *testing.T) {
	dir := programs(t, map[string]string{
		"fails":  `echo "no route with $IPMI_PASSWORD" >&2; exit 3`,
		"babble": `echo perhaps`,
		"flood":  `head -c 1000000 /dev/zero | tr '\0' x >&2; exit 1`,
	})
	for command, want := range map[string]string{"fails": "exit status 3: no route with ***", "babble": "must be on or off", "flood": "xxxx"} {
		driver, err := program(t, dir, v1alpha1.ExecPower{Command: command, Secret: &v1alpha1.SecretRef{Name: "ipmi"}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = driver.State(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") || len(err.Error()) > 10_000 {
			t.Errorf("%s: error %.200v, want %q", command, err, want)
		}
	}
}

// A program that hangs is ended with its children, so that it holds up nothing but its own machine.
func TestExecThatHangs(t *testing.T) {
	dir := programs(t, map[string]string{"hangs": `sleep 600 & echo $! > "$3/child"; wait`})
	states := t.TempDir()
	driver, err := program(t, dir, v1alpha1.ExecPower{Command: "hangs", Args: []string{states}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := driver.On(ctx); !errors.Is(err, context.DeadlineExceeded) || power.Permanent(err) {
		t.Errorf("error %v", err)
	}
	child, err := os.ReadFile(filepath.Join(states, "child"))
	if err != nil {
		t.Fatal(err)
	}
	for range 100 { // until init has reaped it
		stat, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(child)), "stat"))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Error("the child lives on")
}

func TestExecRefusesPrograms(t *testing.T) {
	outside := programs(t, map[string]string{"outside": "exit 0"})
	dir := programs(t, map[string]string{"open": "exit 0", "data": "exit 0", "fine": "exit 0"})
	succeed(t, os.Chmod(filepath.Join(dir, "open"), 0o777), os.Chmod(filepath.Join(dir, "data"), 0o644),
		os.Symlink(filepath.Join(outside, "outside"), filepath.Join(dir, "link")),
		os.Symlink("fine", filepath.Join(dir, "alias")), os.Mkdir(filepath.Join(dir, "folder"), 0o755))
	for command, want := range map[string]string{
		"none": "no such file", "open": "may be written by others", "data": "is not executable", "link": "leads out of",
		"folder": "is not a file", "../fine": "must be the name of a file", "": "must be the name of a file", ".": "must be the name of a file",
	} {
		if _, err := program(t, dir, v1alpha1.ExecPower{Command: command}); !errors.Is(err, power.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", command, err, want)
		}
	}
	for _, command := range []string{"fine", "alias"} { // mounted ConfigMaps are links
		if _, err := program(t, dir, v1alpha1.ExecPower{Command: command}); err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
}
