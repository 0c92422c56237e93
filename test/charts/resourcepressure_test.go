package charts_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// The token of InfluxDB is named, not given: it is in no argument and no object of the chart.
func TestTheTokenOfInfluxDBComesFromASecretOnly(t *testing.T) {
	env := func(v map[string]any) []corev1.EnvVar { return deployment(t, v).Spec.Template.Spec.Containers[0].Env }
	named := func(list []corev1.EnvVar) int {
		return slices.IndexFunc(list, func(e corev1.EnvVar) bool { return e.Name == "INFLUX_TOKEN" })
	}
	if named(env(nil)) >= 0 {
		t.Error("there is a token without a Secret")
	}
	list := env(values(object{"name": "influx", "key": "secret-key"}, "settings", "migration", "influx", "tokenSecret"))
	i := named(list)
	if i < 0 || list[i].Value != "" || list[i].ValueFrom.SecretKeyRef.Name != "influx" || list[i].ValueFrom.SecretKeyRef.Key != "secret-key" {
		t.Errorf("the environment is %+v", list)
	}
	_, err := helm(t).Template(t.Context(), release(mainChart, values("t0ken", "settings", "migration", "influx", "token")))
	if err == nil || !strings.Contains(err.Error(), "additional properties 'token' not allowed") {
		t.Errorf("a token as a value: %v", err)
	}
}

func TestSecretsOfUsageAndSinkAreMounted(t *testing.T) {
	pod := deployment(t, object{"settings": object{"migration": object{
		"influx": object{"caSecret": "a"}, "usage": object{"prometheus": object{"caSecret": "b", "tokenSecret": "c"}},
	}}}).Spec.Template.Spec
	for name, secret := range map[string]string{"influx-ca": "a", "prometheus-ca": "b", "prometheus-token": "c"} {
		mounted := slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.Name == name && m.MountPath == "/etc/mainspring/"+name && m.ReadOnly
		})
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == name })
		if !mounted || i < 0 || pod.Volumes[i].Secret.SecretName != secret {
			t.Errorf("%s: mounted %t, volumes %+v", name, mounted, pod.Volumes)
		}
	}
}

// Who only reports may not create a PodMigration, and who does not look may do nothing of it.
func TestRightsFollowTheModeOfResourcePressure(t *testing.T) {
	rules := func(mode, source string) (out []string) {
		m := template(t, object{"settings": object{"migration": object{"resourcePressure": object{"mode": mode}, "usage": object{"source": source}}}})
		for _, o := range m.OfKind("ClusterRole") {
			if o.GetName() != "mainspring-resourcepressure" {
				continue
			}
			for _, r := range decode[rbacv1.ClusterRole](t, m, "ClusterRole", o.GetName()).Rules {
				out = append(out, strings.Join(r.Verbs, ",")+" "+strings.Join(r.Resources, ","))
			}
		}
		return out
	}
	for _, tc := range []struct{ mode, source, want string }{
		{"off", "metrics.k8s.io", ""},
		{"report", "requests", "patch nodes/status; list podmigrations"},
		{"report", "metrics.k8s.io", "list nodes,pods; patch nodes/status; list podmigrations"},
		{"migrate", "prometheus", "patch nodes/status; list podmigrations; create podmigrations"},
	} {
		if got := strings.Join(rules(tc.mode, tc.source), "; "); got != tc.want {
			t.Errorf("%s of %s: %s, want %s", tc.mode, tc.source, got, tc.want)
		}
	}
}
