package charts_test

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Prometheus sends its token to servers that it has verified, or where the user has turned that off.
func TestPrometheusVerifiesServers(t *testing.T) {
	insecure, agents := object{"insecureSkipVerify": true}, object{"serverName": "agents.example.com"}
	for name, c := range map[string]struct {
		values  object
		monitor string
		want    object // the tlsConfig
	}{
		"the controller, by the webhooks' authority": {
			object{"serviceMonitor": object{"enabled": true}}, "mainspring",
			object{"ca": object{"secret": object{"name": "mainspring-webhook", "key": "ca.crt"}}, "serverName": "mainspring-webhook." + namespace + ".svc"},
		},
		"the controller, as the user says": {
			object{"serviceMonitor": object{"enabled": true, "tlsConfig": insecure}, "webhook": object{"enabled": false}}, "mainspring", insecure,
		},
		"agents, by the webhooks' authority": {
			object{"serviceMonitor": object{"enabled": true}, "agent": object{"enabled": true}}, "mainspring-agent",
			object{"ca": object{"secret": object{"name": "mainspring-webhook", "key": "bundle.crt"}}, "serverName": "mainspring-agent." + namespace + ".svc"},
		},
		"agents, as the user says": {
			object{"serviceMonitor": object{"enabled": true, "agentTLSConfig": agents}, "agent": object{"enabled": true}}, "mainspring-agent", agents,
		},
	} {
		t.Run(name, func(t *testing.T) {
			monitor := decode[unstructured.Unstructured](t, template(t, c.values), "ServiceMonitor", c.monitor)
			endpoints, _, err := unstructured.NestedSlice(monitor.Object, "spec", "endpoints")
			if err != nil || len(endpoints) != 1 {
				t.Fatalf("endpoints %v, %v", endpoints, err)
			}
			if got := endpoints[0].(map[string]any)["tlsConfig"]; !reflect.DeepEqual(got, c.want) {
				t.Errorf("tlsConfig %v, want %v", got, c.want)
			}
		})
	}
}
