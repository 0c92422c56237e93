package charts_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mainspring-rt/mainspring/charts"
	"github.com/mainspring-rt/mainspring/pkg/chart"
)

// configurations are the webhook configurations that the chart renders.
func configurations(t *testing.T, manifests chart.Manifests, name string) (mutating *admissionv1.MutatingWebhookConfiguration, validating *admissionv1.ValidatingWebhookConfiguration) {
	t.Helper()
	return decode[admissionv1.MutatingWebhookConfiguration](t, manifests, "MutatingWebhookConfiguration", name),
		decode[admissionv1.ValidatingWebhookConfiguration](t, manifests, "ValidatingWebhookConfiguration", name)
}

// The local stack and the chart install the same webhooks but for where they are.
func TestWebhooksAreThoseOfTheLocalStack(t *testing.T) {
	mutating, validating := configurations(t, template(t, nil), "mainspring")
	local, err := charts.Webhooks("https://localhost:9443")
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range mutating.Webhooks {
		want := local.Mutating[0].Webhooks[i]
		if w.ClientConfig.Service.Path != nil || *want.ClientConfig.URL != "https://localhost:9443" {
			t.Errorf("%s is at %s; its path would be reset by an upgrade: %v", w.Name, *want.ClientConfig.URL, w.ClientConfig.Service)
		}
		want.ClientConfig = w.ClientConfig
		if !reflect.DeepEqual(w, want) {
			t.Errorf("%s: %+v, want %+v", w.Name, w, want)
		}
	}
	for i, w := range validating.Webhooks {
		want := local.Validating[0].Webhooks[i]
		want.ClientConfig = w.ClientConfig
		if !reflect.DeepEqual(w, want) {
			t.Errorf("%s: %+v, want %+v", w.Name, w, want)
		}
	}
	if len(mutating.Webhooks) != 2 || len(validating.Webhooks) != 4 || len(local.Mutating) != 2 || len(local.Validating) != 1 {
		t.Errorf("%d mutating and %d validating webhooks", len(mutating.Webhooks), len(validating.Webhooks))
	}
	governed := decode[admissionv1.MutatingWebhookConfiguration](t, template(t, nil), "MutatingWebhookConfiguration", "mainspring-governed")
	if len(governed.Webhooks) != 0 {
		t.Errorf("an upgrade would take the entries away: %+v", governed.Webhooks)
	}
}

// An eviction passes when nothing answers it, soon, and is never sent where pods must go while the controller is down.
func TestEvictionsNeverWaitForLong(t *testing.T) {
	_, validating := configurations(t, template(t, nil), "mainspring")
	at := slices.IndexFunc(validating.Webhooks, func(w admissionv1.ValidatingWebhook) bool { return w.Name == "evictions.migrate.mckube.io" })
	if at < 0 {
		t.Fatal("there is no gate")
	}
	w := validating.Webhooks[at]
	if *w.FailurePolicy != admissionv1.Ignore || *w.TimeoutSeconds > 3 || *w.SideEffects != admissionv1.SideEffectClassNoneOnDryRun || !slices.Equal(w.Rules[0].Resources, []string{"pods/eviction"}) {
		t.Errorf("%+v", w)
	}
	for name, want := range map[string]bool{"default": true, "kube-system": false, namespace: false} {
		if got := selects(t, w.NamespaceSelector, labels.Set{corev1.LabelMetadataName: name}); got != want {
			t.Errorf("namespace %s: %t", name, got)
		}
	}
}

// No pod but real-time ones may ever wait for us, and none for long.
func TestWebhooksAreNarrow(t *testing.T) {
	mutating, validating := configurations(t, template(t, nil), "mainspring")
	var pods []admissionv1.MutatingWebhook
	pods = append(pods, mutating.Webhooks[0])
	for _, w := range validating.Webhooks {
		m := admissionv1.MutatingWebhook{Name: w.Name, Rules: w.Rules, ObjectSelector: w.ObjectSelector, NamespaceSelector: w.NamespaceSelector, TimeoutSeconds: w.TimeoutSeconds, SideEffects: w.SideEffects}
		if w.Rules[0].Resources[0] == "pods" {
			pods = append(pods, m)
		}
	}
	if len(pods) != 2 {
		t.Fatalf("%d webhooks for pods", len(pods))
	}
	for _, w := range pods {
		if !selects(t, w.ObjectSelector, labels.Set{"sdv.com": ""}) || selects(t, w.ObjectSelector, labels.Set{"app": "web"}) {
			t.Errorf("%s is for %v", w.Name, w.ObjectSelector)
		}
		for name, want := range map[string]bool{"default": true, "kube-system": false, namespace: false} {
			if got := selects(t, w.NamespaceSelector, labels.Set{corev1.LabelMetadataName: name}); got != want {
				t.Errorf("%s is for namespace %s: %t", w.Name, name, got)
			}
		}
		if *w.TimeoutSeconds > 5 || *w.SideEffects != admissionv1.SideEffectClassNone {
			t.Errorf("%s waits %d s, side effects %s", w.Name, *w.TimeoutSeconds, *w.SideEffects)
		}
	}
}

// A pod that names a WorkloadOptimizer is created without its placement where nothing answers, and soon.
func TestWorkloadsNeverWaitForLong(t *testing.T) {
	mutating, _ := configurations(t, template(t, nil), "mainspring")
	w := mutating.Webhooks[1]
	if *w.FailurePolicy != admissionv1.Ignore || *w.TimeoutSeconds > 2 || *w.SideEffects != admissionv1.SideEffectClassNone {
		t.Errorf("%+v", w)
	}
	if !selects(t, w.ObjectSelector, labels.Set{"workloadoptimizer.kcloud.io/name": "train"}) || selects(t, w.ObjectSelector, labels.Set{"app": "web", "sdv.com": ""}) {
		t.Errorf("it is for %v", w.ObjectSelector)
	}
	for name, want := range map[string]bool{"default": true, "kube-system": false, namespace: false} {
		if got := selects(t, w.NamespaceSelector, labels.Set{corev1.LabelMetadataName: name}); got != want {
			t.Errorf("namespace %s: %t", name, got)
		}
	}
}

func TestWebhooksAreTheReleasesOwn(t *testing.T) {
	r := release(mainChart, nil)
	r.Name, r.Namespace = "edge", "factory"
	manifests, err := helm(t).Template(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	mutating, validating := configurations(t, manifests, "edge-mainspring")
	for _, config := range []*admissionv1.ServiceReference{mutating.Webhooks[0].ClientConfig.Service, validating.Webhooks[0].ClientConfig.Service, validating.Webhooks[1].ClientConfig.Service} {
		if config.Name != "edge-mainspring-webhook" || config.Namespace != "factory" {
			t.Errorf("%+v", config)
		}
	}
	if selects(t, mutating.Webhooks[0].NamespaceSelector, labels.Set{corev1.LabelMetadataName: "factory"}) {
		t.Error("the release's own pods would wait for it")
	}
	d := decode[appsv1.Deployment](t, manifests, "Deployment", "edge-mainspring")
	for _, want := range []string{
		"--webhook-namespace=factory", "--webhook-cert-secret=edge-mainspring-webhook", "--webhook-configurations=edge-mainspring",
		"--webhook-dns-names=edge-mainspring-webhook.factory.svc", "--webhook-cert-rotation=true",
	} {
		if !slices.Contains(d.Spec.Template.Spec.Containers[0].Args, want) {
			t.Errorf("argument %s is missing", want)
		}
	}
	service := decode[corev1.Service](t, manifests, "Service", "edge-mainspring-webhook")
	if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(d.Spec.Template.Labels)) || service.Spec.Ports[0].Port != *mutating.Webhooks[0].ClientConfig.Service.Port {
		t.Errorf("the Service is %+v", service.Spec)
	}
	at := slices.IndexFunc(d.Spec.Template.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == service.Spec.Ports[0].TargetPort.StrVal })
	if at < 0 || d.Spec.Template.Spec.Containers[0].Ports[at].ContainerPort != 9443 {
		t.Errorf("the Service leads to %s", service.Spec.Ports[0].TargetPort.String())
	}
	decode[corev1.Secret](t, manifests, "Secret", "edge-mainspring-webhook")
}

func TestCertManagerTakesOver(t *testing.T) {
	manifests := template(t, object{"webhook": object{"certManager": object{"enabled": true}}})
	if len(manifests.OfKind("Secret")) != 0 {
		t.Error("the chart makes the Secret that cert-manager makes")
	}
	c := decode[unstructured.Unstructured](t, manifests, "Certificate", "mainspring-webhook")
	names, _, _ := unstructured.NestedStringSlice(c.Object, "spec", "dnsNames")
	secret, _, _ := unstructured.NestedString(c.Object, "spec", "secretName")
	if !slices.Equal(names, []string{"mainspring-webhook." + namespace + ".svc"}) || secret != "mainspring-webhook" {
		t.Errorf("a certificate for %v in %s", names, secret)
	}
	if len(manifests.OfKind("Issuer")) != 2 || len(manifests.OfKind("Certificate")) != 2 {
		t.Error("there is no authority")
	}
	for _, r := range roles(t, manifests) {
		for _, rule := range r.rules {
			if slices.Contains(rule.Resources, "secrets") && slices.Contains(rule.Verbs, "update") {
				t.Errorf("%s may write the Secret", r.name)
			}
		}
	}
	own := object{"webhook": object{"certManager": object{"enabled": true, "issuerRef": object{"name": "corp", "kind": "ClusterIssuer"}}}}
	manifests = template(t, own)
	c = decode[unstructured.Unstructured](t, manifests, "Certificate", "mainspring-webhook")
	if issuer, _, _ := unstructured.NestedString(c.Object, "spec", "issuerRef", "name"); issuer != "corp" || len(manifests.OfKind("Issuer")) != 0 {
		t.Errorf("issuer %s", issuer)
	}
}

func TestWithoutWebhooksNothingOfThemIsLeft(t *testing.T) {
	manifests := template(t, values(false, "webhook", "enabled"))
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "Secret"} {
		if found := manifests.OfKind(kind); len(found) != 0 {
			t.Errorf("%d of kind %s are left", len(found), kind)
		}
	}
	for _, a := range arguments(t, values(false, "webhook", "enabled")) {
		if strings.HasPrefix(a, "--webhook-") && a != "--webhook-port=0" {
			t.Errorf("argument %s is left", a)
		}
	}
}

func TestTheDeviceClassIsThatOfTheLocalStack(t *testing.T) {
	got := decode[resourcev1.DeviceClass](t, template(t, object{"fullnameOverride": "other"}), "DeviceClass", "rt-core")
	want, err := charts.DeviceClass()
	if err != nil || !reflect.DeepEqual(got.Spec, want.Spec) {
		t.Errorf("%+v, %v", got.Spec, err)
	}
}

func TestAgentsOfSimulatedNodesAreConfinedAndAlone(t *testing.T) {
	manifests := template(t, values("types: []\n", "cloudProvider", "catalogue"))
	d := decode[appsv1.Deployment](t, manifests, "Deployment", "mainspring-hollow")
	pod := d.Spec.Template.Spec
	if *d.Spec.Replicas != 1 || d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType || pod.ServiceAccountName != "mainspring-hollow" {
		t.Errorf("%d replicas by %s as %s", *d.Spec.Replicas, d.Spec.Strategy.Type, pod.ServiceAccountName)
	}
	s := pod.Containers[0].SecurityContext
	if !*pod.SecurityContext.RunAsNonRoot || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("security %+v %+v", pod.SecurityContext, s)
	}
	if want := "--catalogue-file=" + pod.Containers[0].VolumeMounts[0].MountPath + "/catalogue.yaml"; !slices.Contains(pod.Containers[0].Args, want) {
		t.Errorf("argument %s is missing from %q", want, pod.Containers[0].Args)
	}
	for _, service := range manifests.OfKind("Service") {
		s := decode[corev1.Service](t, manifests, "Service", service.GetName())
		if labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(d.Spec.Template.Labels)) {
			t.Errorf("Service %s leads to it", s.Name)
		}
	}
	for _, m := range template(t, values(false, "hollow", "enabled")) {
		if strings.Contains(m.GetName(), "hollow") {
			t.Errorf("%s %s is left", m.GetKind(), m.GetName())
		}
	}
}

// The controller is reached on the ports that are in use, by those that the values name.
func TestTheControllerIsReachedOnItsPortsOnly(t *testing.T) {
	ports := func(manifests chart.Manifests) map[int]int {
		peers := map[int]int{}
		for _, rule := range decode[networkingv1.NetworkPolicy](t, manifests, "NetworkPolicy", "mainspring").Spec.Ingress {
			for _, p := range rule.Ports {
				peers[p.Port.IntValue()] = len(rule.From)
			}
		}
		return peers
	}
	if got := ports(template(t, nil)); !maps.Equal(got, map[int]int{8080: 0, 9443: 0}) {
		t.Errorf("ports and their peers: %v", got)
	}
	server := []any{map[string]any{"ipBlock": map[string]any{"cidr": "192.0.2.1/32"}}}
	values := map[string]any{"overrun": map[string]any{"enabled": true}, "networkPolicy": map[string]any{"webhooksFrom": server}}
	if got := ports(template(t, values)); !maps.Equal(got, map[int]int{8080: 0, 9443: 1, 8090: 0}) {
		t.Errorf("ports and their peers: %v", got)
	}
}

// The authority of API servers is read from a file that is mounted.
func TestTheAuthorityOfAPIServersIsMounted(t *testing.T) {
	d := decode[appsv1.Deployment](t, template(t, map[string]any{"webhook": map[string]any{"clientCAConfigMap": "apiservers"}}), "Deployment", "mainspring")
	c := d.Spec.Template.Spec.Containers[0]
	mounted := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name == "webhook-client-ca" && m.MountPath == "/etc/mainspring/webhook-client-ca"
	})
	volume := slices.ContainsFunc(d.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "webhook-client-ca" && v.ConfigMap.Name == "apiservers" })
	if !mounted || !volume || !slices.Contains(c.Args, "--webhook-client-ca-file=/etc/mainspring/webhook-client-ca/ca.crt") {
		t.Errorf("mounted %t, volume %t, arguments %v", mounted, volume, c.Args)
	}
}
