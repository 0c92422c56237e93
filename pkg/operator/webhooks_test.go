package operator

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestWebhooksAreOffByDefault(t *testing.T) {
	_, own, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	o := own.Webhooks
	if o.Port != 0 || !o.CertRotation || o.CertValidity != 90*24*time.Hour || !slices.Equal(o.dnsNames(), []string{"localhost"}) {
		t.Errorf("%+v", o)
	}
}

func TestWebhookOptionsRefusals(t *testing.T) {
	on := "--webhook-port=9443"
	for name, tc := range map[string]struct{ args, want []string }{
		"port":                     {[]string{"--webhook-port=70000"}, []string{"--webhook-port", "70000", "65535"}},
		"secret":                   {[]string{on, "--webhook-cert-secret="}, []string{"--webhook-cert-secret", "empty"}},
		"agents without a name":    {[]string{on, "--agent-certificates=system"}, []string{"--agent-certificates", `"system"`, "NAMESPACE/NAME"}},
		"agents, another's Secret": {[]string{on, "--agent-certificates=system/agent", "--webhook-cert-rotation=false"}, []string{"--agent-certificates", "--webhook-cert-rotation"}},
		"agents, and no webhooks":  {[]string{"--agent-certificates=system/agent"}, []string{"--agent-certificates", "--webhook-port"}},
		"validity":                 {[]string{on, "--webhook-cert-validity=1m"}, []string{"--webhook-cert-validity", "1m0s", "10m0s"}},
		"names":                    {[]string{on, "--webhook-dns-names=a.svc,B!"}, []string{"--webhook-dns-names", `"B!"`}},
		"no names":                 {[]string{on, "--webhook-dns-names="}, []string{"--webhook-dns-names", `""`}},
	} {
		_, _, err := parse(t, tc.args...)
		for _, want := range tc.want {
			if !IsUsageError(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want %s", name, err, want)
			}
		}
	}
}
