package operator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/frontdoor"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// OverrunOptions are the settings of POST /overrun.
type OverrunOptions struct {
	// Port to listen on; 0 switches the endpoint off.
	Port int
	// Host to listen on; empty for every address.
	Host string
	// CertDir holds tls.crt and tls.key; empty: a certificate is made.
	CertDir string
	// DNSNames of a certificate that is made, separated by commas.
	DNSNames string
}

func (o *OverrunOptions) addFlags(fs *options.FlagSet) {
	fs.IntVar(&o.Port, "overrun-port", 0, "Port on which overruns are reported by POST /overrun, over TLS, as MC-Kube's programs do (8090 there). 0: off; Mainspring's own agents do not need it")
	fs.StringVar(&o.Host, "overrun-host", "", "Address that POST /overrun listens on. Empty: every address")
	fs.StringVar(&o.CertDir, "overrun-cert-dir", "", "Directory with tls.crt and tls.key of POST /overrun. Empty: a certificate is made")
	fs.StringVar(&o.DNSNames, "overrun-dns-names", "localhost", "Comma-separated names in a certificate that is made for POST /overrun")
}

func (o *OverrunOptions) validate() error {
	if o.Port == 0 {
		return nil
	}
	if o.Port < 0 || o.Port > 65535 {
		return fmt.Errorf("--overrun-port is %d; it must be from 1 to 65535, or 0 for none", o.Port)
	}
	if o.CertDir != "" {
		return hasCertificate("--overrun-cert-dir", o.CertDir)
	}
	for _, name := range o.dnsNames() {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return fmt.Errorf("--overrun-dns-names has %q; %s", name, problems[0])
		}
	}
	return nil
}

func (o *OverrunOptions) dnsNames() []string { return strings.Split(o.DNSNames, ",") }

// addOverruns serves POST /overrun from the manager, on every replica: what is reported goes into an annotation,
// and the leader obeys it.
func addOverruns(ctx context.Context, mgr manager.Manager, own *Options, store *state.Store, clk clock.WithTicker) error {
	o := own.Overruns
	if o.Port == 0 {
		return nil
	}
	logger := log.FromContext(ctx).WithName("overrun")
	if err := rtruntime.IndexContainerIDs(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	certificate, err := frontdoor.NewCertificate(frontdoor.CertificateOptions{Dir: o.CertDir, DNSNames: o.dnsNames(), Clock: clk, Log: logger})
	if err != nil {
		return err
	}
	judge, err := frontdoor.NewJudge(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(o.Host, strconv.Itoa(o.Port)))
	if err != nil {
		return fmt.Errorf("listening for POST /overrun: %w", err)
	}
	logger.Info("Starting overrun listener", "address", listener.Addr().String())
	overruns := &rtruntime.Overruns{Pods: mgr.GetCache(), Live: mgr.GetAPIReader(), Client: mgr.GetClient(), Store: store, Clock: clk}
	server := frontdoor.New(frontdoor.Options{Listener: listener, TLS: certificate.TLS(), Judge: judge, Clock: clk, Log: logger},
		frontdoor.Route{Pattern: "POST /overrun", Handler: frontdoor.Post(logger, frontdoor.ParseOverrun, overruns.Report)})
	return errors.Join(mgr.Add(certificate), mgr.Add(server))
}
