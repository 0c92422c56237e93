package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/mainspring-rt/mainspring/pkg/agent/certrequest"
	"github.com/mainspring-rt/mainspring/pkg/agent/pressure"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/frontdoor"
)

// front serves the agent's endpoints: POST /set-rt, GET /status and /metrics to whom the cluster lets, /healthz and
// /readyz to everybody.
type front struct {
	environment Environment
	client      *http.Client
	requests    certrequest.API
	fast        FastPath
	world       func() *World
	applied     func() *Applied
	counted     func() *Counted
	pressure    func() pressure.State
	// checkpoints are counted where they are switched on.
	checkpoints *checkpoints

	certificate *frontdoor.Certificate
	requester   *certrequest.Requester // nil: the agent has a certificate of its own alone
	server      *frontdoor.Server
	address     net.Addr
}

// Name implements Service.
func (f *front) Name() string { return "front door" }

// Init listens, so that an agent whose port is taken says so at once.
func (f *front) Init(ctx context.Context) error {
	e := f.environment
	log := e.Log.WithName("frontdoor")
	kept := filepath.Join(e.StateDir, "tls")
	options := frontdoor.CertificateOptions{Dir: e.CertDir, Keep: kept, DNSNames: strings.Split(e.DNSNames, ","), Clock: e.Clock, Log: log}
	if e.CertService != "" {
		f.requester = certrequest.New(certrequest.Options{
			Service: e.CertService, Node: e.NodeName, Dir: kept, API: f.requests, Clock: e.Clock, Log: log.WithName("certificate"),
		})
		options.Signed = f.requester.Certificate
	}
	var err error
	f.certificate, err = frontdoor.NewCertificate(options)
	if err != nil {
		return err
	}
	judge, err := frontdoor.NewJudge(e.Config, f.client)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(e.Host, strconv.Itoa(e.Port)))
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	f.address = listener.Addr()
	f.server = frontdoor.New(frontdoor.Options{
		Listener: listener, TLS: f.certificate.TLS(), Judge: judge, Clock: e.Clock, Log: log,
	}, f.routes()...)
	return nil
}

func (f *front) routes() []frontdoor.Route {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		&collector{node: f.environment.NodeName, world: f.world, counted: f.counted},
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector(),
	)
	if f.checkpoints != nil {
		registry.MustRegister(f.checkpoints)
	}
	set := setRT{applied: f.applied, fast: f.fast}
	return []frontdoor.Route{
		{Pattern: "POST /set-rt", Handler: frontdoor.Post(f.environment.Log.WithName("set-rt"), frontdoor.ParseSetRT, set.set)},
		{Pattern: "GET /status", Handler: frontdoor.Get(func() any { return f.state() })},
		{Pattern: "GET /metrics", Handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{})},
		{Pattern: "GET /healthz", Handler: frontdoor.Probe(func() error { return nil }), Open: true},
		{Pattern: "GET /readyz", Handler: frontdoor.Probe(f.ready), Open: true},
	}
}

// Run serves until ctx ends.
func (f *front) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return f.certificate.Start(ctx) })
	group.Go(func() error { return f.server.Start(ctx) })
	if f.requester != nil {
		group.Go(func() error { return f.requester.Start(ctx) })
	}
	return group.Wait()
}

// ready says what keeps the node from being governed by the spec. An API server that went away later does not.
func (f *front) ready() error {
	switch a, c := f.applied(), f.counted(); {
	case f.world() == nil:
		return errors.New("the API server has not been heard yet")
	case c == nil || c.Err != nil:
		return errors.New("the fast path does not answer")
	case a == nil || a.Err != nil:
		return errors.New("the spec has not been applied yet")
	}
	return nil
}

// State is the answer of GET /status.
type State struct {
	Node string `json:"node"`
	// RTNode says whether the node has one, and Generation which one was applied last.
	RTNode     bool  `json:"rtNode"`
	Generation int64 `json:"generation"`
	// Fault is why the fast path is not told, or does not answer, or that the RTNode has gone; empty when all is well.
	Fault string `json:"fault,omitempty"`
	// Refused servers and plans of the spec, by ID, with the reason. One that was in force before still is.
	Refused  map[string]string `json:"refused,omitempty"`
	Pressure pressure.State    `json:"pressure"`
	// Totals by server ID go on where the fast path's own counts begin again.
	Totals map[string]Total `json:"totals"`
	// Table is what the fast path was told, Report what it says.
	Table  *table.Table  `json:"table,omitempty"`
	Report *table.Report `json:"report,omitempty"`
}

func (f *front) state() State {
	out := State{Node: f.environment.NodeName, Pressure: f.pressure()}
	if w := f.world(); w != nil {
		out.RTNode = w.RTNode != nil
	}
	if a := f.applied(); a != nil {
		out.Generation, out.Refused, out.Table, out.Fault = a.Table.Generation, a.Faults, &a.Table, a.Vanished
		if a.Err != nil {
			out.Fault = a.Err.Error()
		}
	}
	if c := f.counted(); c != nil {
		out.Totals, out.Report = c.Servers, &c.Report
		if c.Err != nil {
			out.Fault = c.Err.Error()
		}
	}
	return out
}
