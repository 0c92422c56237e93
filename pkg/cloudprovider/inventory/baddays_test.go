package inventory_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/inventory"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/inventory/power"
)

// bmc is a machine's management controller: a Redfish service over HTTPS with one ComputerSystem.
type bmc struct {
	server *httptest.Server
	lock   sync.Mutex
	state  string
	resets []string
	// fault is a status that every request is answered with; silent ones are never answered.
	fault int
}

const (
	silent = -1
	system = "/redfish/v1/Systems/1"
)

func newBMC(t *testing.T) *bmc {
	t.Helper()
	b := &bmc{state: "Off"}
	b.server = httptest.NewUnstartedServer(b)
	b.server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that hang up are the test
	b.server.StartTLS()
	t.Cleanup(b.server.Close)
	return b
}

// ServeHTTP implements http.Handler.
func (b *bmc) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.lock.Lock()
	defer b.lock.Unlock()
	switch {
	case b.fault == silent:
		b.lock.Unlock()
		_, _ = io.Copy(io.Discard, r.Body) // else the end of the connection is not seen
		<-r.Context().Done()
		b.lock.Lock()
	case b.fault != 0:
		w.WriteHeader(b.fault)
	case r.URL.Path == "/redfish/v1/":
		answer(w, map[string]any{"Systems": map[string]any{"@odata.id": "/redfish/v1/Systems"}})
	case r.URL.Path == "/redfish/v1/Systems":
		answer(w, map[string]any{"Members": []any{map[string]any{"@odata.id": system}}})
	case r.URL.Path == system:
		answer(w, map[string]any{"Id": "1", "PowerState": b.state, "Actions": map[string]any{"#ComputerSystem.Reset": map[string]any{
			"target": system + "/Actions/ComputerSystem.Reset", "ResetType@Redfish.AllowableValues": []string{"On", "ForceOff", "GracefulShutdown", "ForceRestart"},
		}}})
	case r.Method == http.MethodPost:
		b.reset(r)
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func answer(w http.ResponseWriter, o any) { _ = json.NewEncoder(w).Encode(o) }

func (b *bmc) reset(r *http.Request) {
	asked := struct{ ResetType string }{}
	_ = json.NewDecoder(r.Body).Decode(&asked)
	b.resets = append(b.resets, asked.ResetType)
	b.state = map[string]string{"On": "On", "ForceRestart": "On"}[asked.ResetType]
	if b.state == "" {
		b.state = "Off"
	}
}

// behave from now on with a fault, or with none.
func (b *bmc) behave(fault int) {
	b.lock.Lock()
	defer b.lock.Unlock()
	b.fault = fault
}

// did the BMC what it was asked: its power, and the resets.
func (b *bmc) did() (state, resets string) {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.state, strings.Join(b.resets, " ")
}

// secret is what the Secrets of the controller's namespace hold.
func (b *bmc) secret(_ context.Context, name string) (map[string][]byte, error) {
	if name == "ca" {
		return map[string][]byte{"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.server.Certificate().Raw})}, nil
	}
	return map[string][]byte{"username": []byte("operator"), "password": []byte("s3cret")}, nil
}

// managed is a world with machine m1, which a BMC switches.
func managed(t *testing.T) (*world, *bmc) {
	t.Helper()
	b := newBMC(t)
	w := newWorld(t, machine("m1", func(m *inventory.Machine) {
		m.Spec.Power = v1alpha1.MachinePower{Redfish: &v1alpha1.RedfishPower{
			Endpoint: b.server.URL, Auth: "Basic", Credentials: v1alpha1.SecretRef{Name: "bmc"}, CA: &v1alpha1.SecretRef{Name: "ca"},
		}}
	}), nodePool("edge"))
	w.dialer = power.Dialer{Secrets: b.secret}
	w.restart()
	w.settle("m1")
	w.expectPhase("m1", "Free")
	return w, b
}

// A BMC that refuses, fails or never answers: nobody gets its machine; the NodeClaim that has it already is ended in time;
// what cannot be switched off is held until it can be; and once it is mended all is as it was.
func TestABMCOnABadDay(t *testing.T) {
	for name, tc := range map[string]struct {
		fault  int
		reason string
		// patience is how long a NodeClaim waits for it.
		patience time.Duration
	}{
		"refuses with 401":  {401, v1alpha1.ReasonCredentialsRefused, 0},
		"fails with 500":    {500, v1alpha1.ReasonPowerUnreachable, 11 * time.Minute},
		"is busy with 503":  {503, v1alpha1.ReasonPowerUnreachable, 11 * time.Minute},
		"leads away by 302": {302, v1alpha1.ReasonPowerUnreachable, 11 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Run("while it is free", func(t *testing.T) {
				w, b := managed(t)
				b.behave(tc.fault)
				w.pass(6*time.Minute, "m1")
				w.expectPhase("m1", "PowerFailed")
				if _, err := w.launch(nodeClaim("a")); !karpcloud.IsInsufficientCapacityError(err) || w.free() != 0 {
					t.Errorf("error %v, %d slots on offer", err, w.free())
				}
				b.behave(0)
				w.pass(6*time.Minute, "m1")
				w.expectPhase("m1", "Free")
			})
			t.Run("while its machine starts", func(t *testing.T) {
				w, b := managed(t)
				claim := nodeClaim("a")
				w.mustLaunch(claim)
				b.behave(tc.fault)
				w.settle("m1")
				w.pass(tc.patience, "m1")
				w.expectPhase("m1", "Stopping")
				if c := w.condition("m1", v1alpha1.ConditionMachinePower); c.Reason != tc.reason {
					t.Errorf("condition %+v", c)
				}
				b.behave(0)
				w.pass(6*time.Minute, "m1")
				w.end(claim, "m1")
				if state, resets := b.did(); state != "Off" || resets != "" {
					t.Errorf("power %s after %q", state, resets)
				}
				w.expectPhase("m1", "Free")
			})
			t.Run("while its machine stops", func(t *testing.T) {
				w, b := managed(t)
				claim := nodeClaim("a")
				w.mustLaunch(claim)
				w.settle("m1")
				w.join("m1")
				w.settle("m1")
				w.expectPhase("m1", "InUse")
				b.behave(tc.fault)
				if err := w.client.Delete(t.Context(), claim); err != nil {
					t.Fatal(err)
				}
				if err := w.provider.Delete(t.Context(), claim); err != nil {
					t.Fatal(err)
				}
				w.pass(10*time.Minute, "m1")
				if err := w.provider.Delete(t.Context(), claim); err != nil {
					t.Errorf("it is let go of although it runs: %v", err)
				}
				w.expectPhase("m1", "Stopping")
				b.behave(0)
				w.pass(6*time.Minute, "m1")
				w.end(claim, "m1")
				if state, _ := b.did(); state != "Off" {
					t.Errorf("power %s", state)
				}
				w.expectPhase("m1", "Free")
			})
		})
	}
}

// A BMC that takes connections and never answers holds nobody up for longer than the timeout of a call.
func TestABMCThatNeverAnswers(t *testing.T) {
	w, b := managed(t)
	claim := nodeClaim("a")
	w.mustLaunch(claim)
	b.behave(silent)
	if err := w.reconcile("m1"); err != nil { // each call ends after a second
		t.Fatal(err)
	}
	if c := w.condition("m1", v1alpha1.ConditionMachinePower); c.Reason != v1alpha1.ReasonPowerUnreachable {
		t.Errorf("condition %+v", c)
	}
	w.expectPhase("m1", "Starting")
	b.behave(0)
	w.clock.Step(time.Minute)
	w.settle("m1")
	if state, resets := b.did(); state != "On" || resets != "On" {
		t.Errorf("power %s after %q", state, resets)
	}
}

// The InventoryMachine is deleted while its machine boots: the NodeClaim is ended, and it goes once the power is off.
func TestAMachineThatIsDeletedWhileItStarts(t *testing.T) {
	w := newWorld(t, machine("m1"), nodePool("edge"))
	w.settle("m1")
	claim := nodeClaim("a")
	w.mustLaunch(claim)
	w.settle("m1")
	m := w.expectPhase("m1", "Starting")
	if err := w.client.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	w.settle("m1")
	current := &karpv1.NodeClaim{}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(claim), current); err != nil || current.DeletionTimestamp.IsZero() {
		t.Fatalf("its NodeClaim is not being deleted, %v", err)
	}
	w.end(claim, "m1")
	if !w.gone(m) || w.board("m1").state != v1alpha1.PowerOff {
		t.Errorf("it stays, or is %s", w.board("m1").state)
	}
}

// A kubelet joins after its machine was given up: the Node must not stay, nor stand for the next NodeClaim's.
func TestAMachineThatJoinsTooLate(t *testing.T) {
	w := newWorld(t, machine("m1"), nodePool("edge"))
	w.settle("m1")
	claim := nodeClaim("a")
	w.mustLaunch(claim)
	w.settle("m1")
	w.pass(11*time.Minute, "m1")
	w.board("m1").ignoring = true // it boots on while it is to shut down
	node := w.join("m1")
	claim.Labels = nil // Karpenter, too, knows of no Node of this NodeClaim
	w.end(claim, "m1")
	w.pass(5*time.Minute, "m1")
	if !w.gone(node) {
		t.Error("the Node stays")
	}
	w.expectPhase("m1", "Free")
	if w.board("m1").state != v1alpha1.PowerOff {
		t.Errorf("power %s", w.board("m1").state)
	}
}

// The one machine that there is, is to be replaced by itself: first ended, then started, and then it does not come up.
// Nothing of it is left but a quarantine, after which it is tried again.
func TestAReplacementOnAFullInventoryThatFails(t *testing.T) {
	w, before := running(t)
	after := nodeClaim("b")
	if _, err := w.launch(after); !karpcloud.IsInsufficientCapacityError(err) {
		t.Fatalf("error %v: the machine is not free yet", err)
	}
	w.end(before, "m1")
	w.board("m1").dead = true
	w.mustLaunch(after)
	w.settle("m1")
	w.pass(11*time.Minute, "m1")
	current := &karpv1.NodeClaim{}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(after), current); err != nil || current.DeletionTimestamp.IsZero() {
		t.Fatalf("its NodeClaim is not being deleted, %v", err)
	}
	w.end(after, "m1")
	w.board("m1").dead = false
	w.pass(2*time.Minute, "m1")
	if m := w.expectPhase("m1", "Free"); m.Status.Claim != nil || m.Status.Failures != 1 || w.free() != 1 {
		t.Errorf("status %+v, %d slots on offer", m.Status, w.free())
	}
	w.mustLaunch(nodeClaim("c"))
	w.settle("m1")
	w.join("m1")
	w.settle("m1")
	w.expectPhase("m1", "InUse")
}
