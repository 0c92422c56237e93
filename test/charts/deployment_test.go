package charts_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mainspring-rt/mainspring/pkg/chart"
)

func deployment(t *testing.T, v map[string]any) *appsv1.Deployment {
	t.Helper()
	return decode[appsv1.Deployment](t, template(t, v), "Deployment", "mainspring")
}

func TestPodIsConfined(t *testing.T) {
	pod := deployment(t, nil).Spec.Template.Spec
	if pod.HostNetwork || pod.HostPID || pod.HostIPC {
		t.Error("the pod shares the host's namespaces")
	}
	security := pod.SecurityContext
	if !*security.RunAsNonRoot || *security.RunAsUser == 0 || security.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the pod's security context is %+v", security)
	}
	for _, container := range pod.Containers {
		s := container.SecurityContext
		if *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) != 0 {
			t.Errorf("the security context of container %s is %+v", container.Name, s)
		}
		if container.Resources.Requests.Cpu().IsZero() || container.Resources.Limits.Memory().IsZero() {
			t.Errorf("container %s has no CPU request or no memory limit", container.Name)
		}
	}
}

func TestControllerOutlivesALostReplica(t *testing.T) {
	manifests := template(t, nil)
	d := decode[appsv1.Deployment](t, manifests, "Deployment", "mainspring")
	if *d.Spec.Replicas != 2 || d.Spec.Template.Spec.PriorityClassName != "system-cluster-critical" {
		t.Errorf("%d replicas of priority %q", *d.Spec.Replicas, d.Spec.Template.Spec.PriorityClassName)
	}
	own := labels.Set(d.Spec.Template.Labels)
	budget := decode[policyv1.PodDisruptionBudget](t, manifests, "PodDisruptionBudget", "mainspring")
	if !selects(t, budget.Spec.Selector, own) {
		t.Error("the PodDisruptionBudget does not select the pods")
	}
	spread := d.Spec.Template.Spec.TopologySpreadConstraints
	for _, constraint := range spread {
		if !selects(t, constraint.LabelSelector, own) {
			t.Errorf("the spread over %s does not select the pods", constraint.TopologyKey)
		}
	}
	if len(spread) != 2 {
		t.Errorf("%d spread constraints, want hosts and zones", len(spread))
	}
	service := decode[corev1.Service](t, manifests, "Service", "mainspring")
	if !labels.SelectorFromSet(service.Spec.Selector).Matches(own) {
		t.Error("the Service does not select the pods")
	}
}

func selects(t *testing.T, selector *metav1.LabelSelector, own labels.Set) bool {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return !s.Empty() && s.Matches(own)
}

func TestProbesAskTheHealthPort(t *testing.T) {
	container := deployment(t, values(9091, "healthProbe", "port")).Spec.Template.Spec.Containers[0]
	for path, probe := range map[string]*corev1.Probe{"/healthz": container.LivenessProbe, "/readyz": container.ReadinessProbe} {
		if probe.HTTPGet.Path != path || probe.HTTPGet.Scheme != "" {
			t.Errorf("the probe of %s asks %+v", path, probe.HTTPGet)
		}
		port := slices.IndexFunc(container.Ports, func(p corev1.ContainerPort) bool { return p.Name == probe.HTTPGet.Port.StrVal })
		if port < 0 || container.Ports[port].ContainerPort != 9091 {
			t.Errorf("the probe of %s asks port %s of %v", path, probe.HTTPGet.Port.String(), container.Ports)
		}
	}
}

func TestReleaseNamesItsObjects(t *testing.T) {
	for name, test := range map[string]struct {
		release string
		values  map[string]any
		want    string
	}{
		"the chart's name":            {"mainspring", nil, "mainspring"},
		"a release that has it":       {"mainspring-edge", nil, "mainspring-edge"},
		"another release":             {"edge", nil, "edge-mainspring"},
		"another name":                {"edge", object{"nameOverride": "spring"}, "edge-spring"},
		"a full name":                 {"edge", object{"fullnameOverride": "spring"}, "spring"},
		"a name that is far too long": {strings.Repeat("x", 53), nil, strings.Repeat("x", 53) + "-mainsprin"},
	} {
		t.Run(name, func(t *testing.T) {
			r := release(mainChart, test.values)
			r.Name = test.release
			manifests, err := helm(t).Template(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			decode[appsv1.Deployment](t, manifests, "Deployment", test.want)
			if i, err := chart.ControllerInvocation(manifests); err != nil || i.ServiceAccount != test.want {
				t.Errorf("it runs as %q, %v", i.ServiceAccount, err)
			}
		})
	}
}

func TestCatalogueReachesTheController(t *testing.T) {
	manifests := template(t, object{"cloudProvider": object{"catalogue": "types: []\n", "instanceTypes": "[]"}})
	config := decode[corev1.ConfigMap](t, manifests, "ConfigMap", "mainspring-catalogue")
	if config.Data["catalogue.yaml"] != "types: []\n" || config.Data["instance-types.json"] != "[]" {
		t.Errorf("the ConfigMap holds %q", config.Data)
	}
	d := decode[appsv1.Deployment](t, manifests, "Deployment", "mainspring")
	pod := d.Spec.Template
	mount := pod.Spec.Containers[0].VolumeMounts[0]
	for _, argument := range []string{"--catalogue-file=" + mount.MountPath + "/catalogue.yaml", "--instance-types-file-path=" + mount.MountPath + "/instance-types.json"} {
		if !slices.Contains(pod.Spec.Containers[0].Args, argument) {
			t.Errorf("argument %s is missing from %q", argument, pod.Spec.Containers[0].Args)
		}
	}
	other := deployment(t, values("types: [other]\n", "cloudProvider", "catalogue"))
	if other.Spec.Template.Annotations["checksum/catalogue"] == pod.Annotations["checksum/catalogue"] {
		t.Error("another catalogue does not roll the pods")
	}
}

func TestMetricsCertificateIsMounted(t *testing.T) {
	pod := deployment(t, values("metrics-tls", "metrics", "certificateSecret")).Spec.Template.Spec
	if pod.Volumes[0].Secret.SecretName != "metrics-tls" {
		t.Errorf("the volumes are %+v", pod.Volumes)
	}
	if want := "--metrics-cert-dir=" + pod.Containers[0].VolumeMounts[0].MountPath; !slices.Contains(pod.Containers[0].Args, want) {
		t.Errorf("argument %s is missing from %q", want, pod.Containers[0].Args)
	}
}

func TestImageIsNamedByTagOrDigest(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0", 64)
	for want, image := range map[string]object{
		"mainspring-controller:0.1.0":       {},
		"example.com/c:v2":                  {"repository": "example.com/c", "tag": "v2"},
		"mainspring-controller@" + digest:   {"tag": "v2", "digest": digest},
		"example.com:5000/team/c@" + digest: {"repository": "example.com:5000/team/c", "digest": digest},
	} {
		if got := deployment(t, object{"image": image}).Spec.Template.Spec.Containers[0].Image; got != want {
			t.Errorf("image %v is %s, want %s", image, got, want)
		}
	}
}
