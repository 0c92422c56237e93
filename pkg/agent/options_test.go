package agent_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent"
)

func TestTheServiceOfACertificate(t *testing.T) {
	for service, more := range map[string][]string{
		"mainspring-agent.mainspring-system.svc": nil,
		"":                                       {"--cert-dir=/etc/tls"},
	} {
		o, err := agent.ParseOptions(append(more, "--node-name=node", "--cert-service="+service), io.Discard)
		if err != nil || o.CertService != service {
			t.Errorf("%q is read as %q, %v", service, o.CertService, err)
		}
	}
	for service, more := range map[string][]string{
		"Agent.svc": nil, "*.svc": nil, "agent.svc": {"--cert-dir=/etc/tls"},
	} {
		_, err := agent.ParseOptions(append(more, "--node-name=node", "--cert-service="+service), io.Discard)
		if !errors.Is(err, agent.ErrUsage) || !strings.Contains(err.Error(), "--cert-service") || !strings.Contains(err.Error(), service) {
			t.Errorf("%q with %q: %v; want it refused by name and value", service, more, err)
		}
	}
}
