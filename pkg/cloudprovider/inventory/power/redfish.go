package power

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// redfish is the driver that asks a Redfish service. Each call begins at the service root and follows the links
// there, so it holds nothing that a firmware update could change.
type redfish struct {
	client   *http.Client
	endpoint *url.URL
	system   string
	auth     v1alpha1.RedfishAuth
	user     string
	password string
}

// serviceRoot is where every Redfish service begins (DSP0266, 6.2).
const serviceRoot = "/redfish/v1/"

func (d Dialer) redfish(ctx context.Context, spec v1alpha1.RedfishPower) (Driver, error) {
	endpoint, err := url.Parse(strings.TrimSuffix(spec.Endpoint, "/"))
	if err != nil || endpoint.Scheme != "https" || endpoint.Host == "" {
		return nil, fmt.Errorf("%w: redfish.endpoint is %q; it must be such as https://10.0.0.7", ErrConfig, spec.Endpoint)
	}
	client, err := d.newHTTPClient(ctx, spec.CA)
	if err != nil {
		return nil, err
	}
	r := &redfish{client: client, endpoint: endpoint, system: spec.System, auth: spec.Auth}
	if r.user, err = d.key(ctx, spec.Credentials, "username"); err != nil {
		return nil, err
	}
	if r.password, err = d.key(ctx, spec.Credentials, "password"); err != nil {
		return nil, err
	}
	return r, nil
}

// pushButton changes the state, whatever it is.
const pushButton = "PushPowerButton"

// Reset types of a ComputerSystem, in the order in which they are preferred for what we want.
var (
	typesOn       = []string{"On", "ForceOn", pushButton}
	typesGraceful = []string{"GracefulShutdown", "ForceOff"}
	typesForce    = []string{"ForceOff"}
	typesRestart  = []string{"ForceRestart", "PowerCycle", "GracefulRestart"}
)

func (r *redfish) State(ctx context.Context) (State, error) {
	state := v1alpha1.PowerUnknown
	err := r.withSession(ctx, func(s *session) error {
		system, err := s.computerSystem(ctx)
		if err != nil {
			return err
		}
		state, err = stateOf(system)
		return err
	})
	return state, err
}

func (r *redfish) On(ctx context.Context) error {
	return r.reset(ctx, typesOn, v1alpha1.PowerOn)
}

func (r *redfish) Off(ctx context.Context, force bool) error {
	if force {
		return r.reset(ctx, typesForce, v1alpha1.PowerOff)
	}
	return r.reset(ctx, typesGraceful, v1alpha1.PowerOff)
}

func (r *redfish) Restart(ctx context.Context) error {
	return r.reset(ctx, typesRestart, "")
}

// reset asks for the first of the types that the system allows, unless it is in the wanted state already. The button is
// pushed only where the state is known to be the other one.
func (r *redfish) reset(ctx context.Context, types []string, want State) error {
	return r.withSession(ctx, func(s *session) error {
		system, err := s.computerSystem(ctx)
		if err != nil {
			return err
		}
		state, err := stateOf(system)
		if err != nil {
			return err
		}
		if want != "" && state == want {
			return nil
		}
		allowed, err := s.allowedResets(ctx, system)
		if err != nil {
			return err
		}
		for _, t := range types {
			if slices.Contains(allowed, t) && (t != pushButton || state == v1alpha1.PowerOff) {
				return s.resetTo(ctx, system, t)
			}
		}
		return fmt.Errorf("%w: ComputerSystem %s allows the resets %s, and none of %s",
			ErrConfig, system.ID, strings.Join(allowed, ", "), strings.Join(types, ", "))
	})
}

// stateOf reads a ComputerSystem's PowerState (DMTF DSP0268, Resource.PowerState); PoweringOn, PoweringOff and Paused are on the way. A service that
// gives none, or another, cannot tell whether what it was asked for is done: nothing is switched by it.
func stateOf(system *computerSystem) (State, error) {
	switch system.PowerState {
	case "On":
		return v1alpha1.PowerOn, nil
	case "Off":
		return v1alpha1.PowerOff, nil
	case "PoweringOn", "PoweringOff", "Paused":
		return v1alpha1.PowerUnknown, nil
	}
	return v1alpha1.PowerUnknown, fmt.Errorf("%w: ComputerSystem %s has PowerState %.40q; want On, Off, PoweringOn, PoweringOff or Paused", ErrNoState, system.ID, system.PowerState)
}

// taskPoll is how often a task is asked after where its service does not say.
const taskPoll = time.Second
