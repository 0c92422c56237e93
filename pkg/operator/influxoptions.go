package operator

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/mainspring-rt/mainspring/pkg/influx"
)

// influxToken is the environment variable of the token. There is no flag for it: flags show in lists of processes.
const influxToken = "INFLUX_TOKEN"

// Values of --influx-write beside the modes of writing.
const (
	influxAuto influx.Mode = "auto"
	influxOff  influx.Mode = "off"
)

// InfluxOptions are the settings of an InfluxDB.
type InfluxOptions struct {
	// URL without path; Org and Bucket (of 1.x: the database).
	URL, Org, Bucket string
	// Write is how finished migrations are written: v1, v2, or off.
	Write influx.Mode
	// TokenFile holds the token, and may change; CAFile the certificates that the server's is verified with.
	TokenFile, CAFile string

	token secret
}

func (o *InfluxOptions) addFlags(fs *options.FlagSet) {
	fs.Var(check(&o.URL, defaultInfluxURL, address), "influx-url", "URL, without path, of InfluxDB")
	fs.StringVar(&o.Org, "influx-org", defaultInfluxOrg, "Organization in InfluxDB 2.x")
	fs.StringVar(&o.Bucket, "influx-bucket", defaultInfluxBucket, "Bucket in InfluxDB 2.x, database in 1.x")
	fs.Var(check(&o.Write, influxAuto, oneOf(influxAuto, influxOff, influx.ModeV1, influx.ModeV2)), "influx-write", "Whether each finished migration is written to InfluxDB as pod_migration, and how: off, v1 (1.x), v2 (2.x), or auto: v2 if its URL or a token was given")
	fs.StringVar(&o.TokenFile, "influx-token-file", "", "File with the token of InfluxDB (of 1.x: user:password), from a Secret. Or give environment variable INFLUX_TOKEN, from a Secret")
	fs.StringVar(&o.CAFile, "influx-ca-file", "", "File with PEM certificates that the one of InfluxDB is verified with. Empty: those of the system")
}

// complete reads the token, and decides what auto means. No message shows the token.
func (o *InfluxOptions) complete(given map[string]bool, lookup func(string) (string, bool)) error {
	text, _ := lookup(influxToken)
	o.token = secretOf(strings.TrimSpace(text))
	token := o.token.reveal()
	hasToken := token != "" || o.TokenFile != ""
	if o.Write == influxAuto {
		o.Write = influxOff
		if given["influx-url"] || hasToken {
			o.Write = influx.ModeV2
		}
	}
	switch {
	case token != "" && o.TokenFile != "":
		return fmt.Errorf("environment variable %s and --influx-token-file are both given; give one of them", influxToken)
	case !plain(token):
		return fmt.Errorf("environment variable %s (its value is not shown) has spaces or characters that no token has; put the token itself into the Secret that it is taken from", influxToken)
	case o.Bucket == "":
		return errors.New("--influx-bucket is empty; it must name a bucket, or, of 1.x, a database")
	case o.Write == influx.ModeV2 && !hasToken:
		return fmt.Errorf("migrations are written to InfluxDB 2.x, which wants a token, and there is none; give environment variable %s from a Secret, --influx-token-file, --influx-write=v1 where the server is InfluxDB 1.x, or --influx-write=off", influxToken)
	case o.Write == influx.ModeV2 && o.Org == "":
		return errors.New("--influx-org is empty; InfluxDB 2.x wants an organization")
	}
	if err := readable("influx-token-file", o.TokenFile); err != nil {
		return err
	}
	_, err := certificates("influx-ca-file", o.CAFile)
	return err
}

// plain tells whether text can be a token or user:password.
func plain(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// client of the InfluxDB.
func (o *InfluxOptions) client() (*influx.Client, error) {
	sender, err := sender("influx-ca-file", o.CAFile)
	if err != nil {
		return nil, err
	}
	return &influx.Client{URL: o.URL, Org: o.Org, Bucket: o.Bucket, Mode: o.Write, HTTP: sender, Token: tokenOf(o.token, o.TokenFile)}, nil
}

// tokenOf is the token as it is now: a file changes when its Secret does.
func tokenOf(token secret, file string) func() (string, error) {
	return func() (string, error) {
		if file == "" {
			return token.reveal(), nil
		}
		data, err := os.ReadFile(file)
		return strings.TrimSpace(string(data)), err
	}
}

// sender of requests that verifies certificates with those of a file.
func sender(flag, file string) (*http.Client, error) {
	pool, err := certificates(flag, file)
	if err != nil {
		return nil, err
	}
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSClientConfig:     &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 2, MaxConnsPerHost: 8,
	}}, nil
}

func certificates(flag, file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--%s is %q; it must be a file that can be read: %w", flag, file, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("--%s is %q; it must have PEM certificates", flag, file)
	}
	return pool, nil
}
