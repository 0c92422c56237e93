package inventory

import (
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

func TestOneBoardHoweverItIsSpelt(t *testing.T) {
	redfish := func(endpoint, system string) *Machine {
		o := &Machine{}
		o.Spec.Power.Redfish = &v1alpha1.RedfishPower{Endpoint: endpoint, System: system}
		return o
	}
	wake := func(mac string) *Machine {
		o := &Machine{}
		o.Spec.Power.WakeOnLAN = &v1alpha1.WakeOnLANPower{MAC: mac}
		return o
	}
	for name, c := range map[string]struct {
		a, b *Machine
		same bool
	}{
		"alike":                 {redfish("https://10.0.0.7", "1"), redfish("https://10.0.0.7", "1"), true},
		"a slash":               {redfish("https://10.0.0.7", ""), redfish("https://10.0.0.7/", ""), true},
		"the port":              {redfish("https://10.0.0.7:443", "1"), redfish("https://10.0.0.7", "1"), true},
		"capitals and a dot":    {redfish("https://BMC.example.", "1"), redfish("https://bmc.example", "1"), true},
		"zeros of an address":   {redfish("https://[fd00:0::7]", "1"), redfish("https://[fd00::7]:443", "1"), true},
		"the only one by name":  {redfish("https://10.0.0.7", ""), redfish("https://10.0.0.7", "437XR1138R2"), true},
		"two of a chassis":      {redfish("https://10.0.0.7", "1"), redfish("https://10.0.0.7", "2"), false},
		"another port":          {redfish("https://10.0.0.7:8443", ""), redfish("https://10.0.0.7", ""), false},
		"another host":          {redfish("https://10.0.0.7", ""), redfish("https://10.0.0.8", ""), false},
		"one interface":         {wake("02:00:5e:10:00:0A"), wake("02:00:5e:10:00:0a"), true},
		"two interfaces":        {wake("02:00:5e:10:00:0a"), wake("02:00:5e:10:00:0b"), false},
		"drivers that tell not": {&Machine{}, &Machine{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if ab, ba := sharedPower(c.a, c.b), sharedPower(c.b, c.a); (ab != "") != c.same || (ba != "") != c.same {
				t.Errorf("%q and %q, want shared: %v", ab, ba, c.same)
			}
		})
	}
}
