package power

import (
	"context"
	"net/http"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// webhook is the driver that asks a web service.
type webhook struct {
	client  *http.Client
	url     string
	token   string
	machine string
}

// webhookRequest is what is sent.
type webhookRequest struct {
	Action  string `json:"action"`
	Machine string `json:"machine"`
}

// webhookState is what status is answered with.
type webhookState struct {
	Power string `json:"power"`
}

func (d Dialer) webhook(ctx context.Context, machine string, spec v1alpha1.WebhookPower) (Driver, error) {
	client, err := d.newHTTPClient(ctx, spec.CA)
	if err != nil {
		return nil, err
	}
	w := &webhook{client: client, url: spec.URL, machine: machine}
	if spec.Token != nil {
		if w.token, err = d.key(ctx, *spec.Token, "token"); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *webhook) State(ctx context.Context) (State, error) {
	a, err := w.post(ctx, actionStatus)
	if err != nil {
		return v1alpha1.PowerUnknown, err
	}
	state := webhookState{}
	if err := a.into(&state); err != nil {
		return v1alpha1.PowerUnknown, err
	}
	return parseState(state.Power, "the web service")
}

func (w *webhook) On(ctx context.Context) error { return w.do(ctx, actionOn) }

func (w *webhook) Off(ctx context.Context, _ bool) error { return w.do(ctx, actionOff) }

func (w *webhook) Restart(ctx context.Context) error { return w.do(ctx, actionRestart) }

func (w *webhook) do(ctx context.Context, action string) error {
	_, err := w.post(ctx, action)
	return err
}

func (w *webhook) post(ctx context.Context, action string) (*answer, error) {
	req, err := jsonRequest(ctx, http.MethodPost, w.url, webhookRequest{Action: action, Machine: w.machine})
	if err != nil {
		return nil, err
	}
	if w.token != "" {
		req.Header.Set("Authorization", "Bearer "+w.token)
	}
	a, err := roundTrip(w.client, req)
	if err != nil {
		return nil, err
	}
	if a.status/100 != 2 {
		return nil, refused(req, a, redact(string(a.body), []string{w.token}))
	}
	return a, nil
}
