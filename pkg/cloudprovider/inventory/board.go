package inventory

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// sharedPower is what of its power the machine has in common with another, in words: who switches the one would switch the other. Empty
// when nothing is, as far as their settings tell: what programs and webhooks switch is theirs to know.
func sharedPower(m, other *Machine) string {
	if a, b := m.Spec.Power.Redfish, other.Spec.Power.Redfish; a != nil && b != nil && serviceOf(a.Endpoint) == serviceOf(b.Endpoint) {
		if a.System == b.System || a.System == "" || b.System == "" { // left out, the service has one only
			return fmt.Sprintf("power.redfish is %s, as that of machine %q; each machine needs a ComputerSystem of its own",
				strings.TrimSpace(a.Endpoint+" "+a.System), other.Name)
		}
	}
	if a, b := m.Spec.Power.WakeOnLAN, other.Spec.Power.WakeOnLAN; a != nil && b != nil && strings.EqualFold(a.MAC, b.MAC) {
		return fmt.Sprintf("power.wakeOnLAN.mac is %s, as that of machine %q", a.MAC, other.Name)
	}
	return ""
}

// serviceOf is an endpoint as it is always spelt: host and port.
func serviceOf(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return endpoint
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.String()
	}
	return net.JoinHostPort(host, cmp.Or(u.Port(), "443"))
}
